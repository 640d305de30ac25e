"""Background work that leaves room: publishers and readers wait for what it does in Tarantool and the store."""

from __future__ import annotations

import asyncio
import time

_LONGEST_REST = 0.5


class Pace:
    """Rests as long as the work before took, so that it takes at most half of the time."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    async def rest(self) -> None:
        await asyncio.sleep(min(time.monotonic() - self._begun, _LONGEST_REST))
        self._begun = time.monotonic()
