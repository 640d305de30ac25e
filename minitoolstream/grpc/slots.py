"""What holds memory while it runs, and so cannot run any number of times at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from minitoolstream.domain.errors import MtsError

WAIT_SECONDS = 30.0


class Slots:
    """Some at once; the others wait, and are told to come back when that takes too long."""

    def __init__(self, count: int, what: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._what = what

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise MtsError("overloaded", f"too many {self._what} at once; try again shortly") from None
        try:
            yield
        finally:
            self._free.release()
