"""A durable's reader that is told when there is something to read, and reads when it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from minitoolstream.domain.consumer import ConsumerSettings
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.manage_consumers import get_consumer, put_consumer
from minitoolstream.services.watch_changes import durable_key, subject_key, woken

_SLOWER = 2
_LONGEST_PAUSE = 30.0
_AT_THE_END = 60.0


async def ensure_durable(core: Core, subject: str, durable: str, start: int = 1) -> None:
    """Make it if there is none; `mode_mismatch` for one that is not read in order."""
    try:
        mode = (await get_consumer(core, subject, durable)).mode
    except MtsError as error:
        if error.code != "unknown_durable":
            raise
        mode = (await put_consumer(core, subject, durable, ConsumerSettings(), start=max(start, 1)))[0].mode
    if mode != "ordered":
        raise MtsError("mode_mismatch", "a shared durable is read by leases: POST .../lease")


class Nudges:
    """Acks of this process, which wake nobody by themselves."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    @contextmanager
    def heard_by(self, subject: str, durable: str, event: asyncio.Event) -> Iterator[None]:
        waiting = self._waiting.setdefault((subject, durable), set())
        waiting.add(event)
        try:
            yield
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop((subject, durable), None)

    def tell(self, subject: str, durable: str) -> None:
        for event in self._waiting.get((subject, durable), ()):
            event.set()


async def follow_durable(
    core: Core, subject: str, durable: str, again: float, nudges: Nudges
) -> AsyncGenerator[int, None]:
    """The subject's last sequence whenever the durable is behind it: with each message that comes, after each ack that
    leaves some, and after a pause that grows while nothing moves. So a reader that reads once each time it is told
    misses nothing, whatever becomes of one of its reads."""
    told, pause = (0, 0), again
    keys = subject_key(subject), durable_key(subject, durable)
    with core.watcher.watch(*keys) as changed, nudges.heard_by(subject, durable, changed):
        while not core.draining.is_set():
            changed.clear()
            consumer = await get_consumer(core, subject, durable)
            now = consumer.latest_sequence, consumer.last_sequence
            is_behind = now[0] > now[1]
            if is_behind and now != told:
                told, pause = now, again
                yield now[0]
            until = asyncio.get_running_loop().time() + (pause if is_behind else _AT_THE_END)
            if not await woken(changed, until) and is_behind:
                pause = min(pause * _SLOWER, _LONGEST_PAUSE)
                if pause > _SLOWER * again:
                    told = (0, 0)
