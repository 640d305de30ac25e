"""What holds memory while it runs, and so cannot run any number of times at once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from minitoolstream.domain.errors import MtsError

WAIT_SECONDS = 30.0


class Slots:
    """Some at once, as a context each; the others wait, and are told to come back when that takes too long."""

    def __init__(self, count: int, what: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._what = what

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise MtsError("overloaded", f"too many {self._what} at once; try again shortly") from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()

    async def for_the_call(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One of them until the call has ended: its answer is held until the client has taken it."""
        await self.__aenter__()
        context.add_done_callback(lambda _: self._free.release())  # type: ignore[arg-type]
