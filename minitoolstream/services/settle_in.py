"""What a host does once when it starts: its settings reach Tarantool, the bucket's lifecycle is put in step, and the
pipeline has its table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.keep_lifecycle import apply_lifecycle
from minitoolstream.services.manage_retention import apply_settings
from minitoolstream.services.track_pipeline import prepare_tracking

_log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0

TASKS: tuple[Callable[[Core], Awaitable[object]], ...] = (apply_settings, apply_lifecycle, prepare_tracking)


async def settle_in(core: Core) -> None:
    """Each task until it is done: a host starts while Tarantool or the store is down. What is refused for good is
    told, and left."""
    for task in TASKS:
        await _until_done(core, task)


async def _until_done(core: Core, task: Callable[[Core], Awaitable[object]]) -> None:
    pause = _FIRST_PAUSE
    name = getattr(task, "__name__", str(task))
    while True:
        try:
            await task(core)
            return
        except MtsError as error:
            if not error.retryable:
                _log.warning("%s is left: %s", name, error.message)
                return
            _log.debug("%s waits: %s", name, error.message)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
