"""Waiting for messages: a long poll, or a stream of pages. Whoever waits is woken by the commit, never by polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from minitoolstream.domain.limits import MAX_WAIT_SECONDS
from minitoolstream.services.core import Core
from minitoolstream.services.read_messages import Place, Reading
from minitoolstream.services.watch_changes import woken


async def wait_for_messages(core: Core, place: Place, wait: float) -> Reading:
    """The next page as soon as it holds a message, or an empty one after `wait` seconds."""
    if wait <= 0:
        return await place.read(shared=False)
    deadline = _now() + min(wait, MAX_WAIT_SECONDS)
    with core.watcher.watch(*place.keys) as changed:
        while True:
            changed.clear()
            reading = await place.read()
            if reading.page.count or core.draining.is_set():
                return reading
            # A filter that found nothing yet is not at the end: go on, as long as the caller waits.
            searching = reading.page.more and _now() < deadline
            if not searching and not await woken(changed, deadline):
                return reading


async def follow_messages(core: Core, place: Place, pause: float) -> AsyncGenerator[Reading | None, None]:
    """Pages as they come, None when nothing came for `pause` seconds. Ends when the host stops."""
    with core.watcher.watch(*place.keys) as changed:
        while not core.draining.is_set():
            changed.clear()
            reading = await place.read()
            if reading.page.count:
                yield reading
            # At the end there is nothing to read before the next change, and `changed` would tell of one already.
            if not reading.page.more and not await woken(changed, _now() + pause):
                yield None


def _now() -> float:
    return asyncio.get_running_loop().time()
