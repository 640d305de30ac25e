"""Many who ask for the same at once: one does the work, or one goes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class SingleFlight:
    """Whoever asks for what is being fetched already gets that answer too. Answers must not be changed.

    What more than one has asked for is kept for `keep` seconds, for those who come a moment later.
    """

    def __init__(self, keep: float = 0.0) -> None:
        self._keep = keep
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}
        self._shared: set[Hashable] = set()

    async def run(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        flight: asyncio.Task[T] | None = self._flights.get(key)
        if flight is None:
            flight = asyncio.ensure_future(_awaited(work))
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._land(key, done))
        elif flight.done():
            return flight.result()
        else:
            self._shared.add(key)
        # One who leaves must not take the answer away from the others.
        return await asyncio.shield(flight)

    def _land(self, key: Hashable, flight: asyncio.Task[Any]) -> None:
        failed = flight.cancelled() or flight.exception() is not None
        if failed or not self._keep or key not in self._shared:
            self._drop(key)
        else:
            asyncio.get_running_loop().call_later(self._keep, self._drop, key)

    def _drop(self, key: Hashable) -> None:
        del self._flights[key]
        self._shared.discard(key)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


class Queues:
    """One for each key: whoever is first acts, the others wait in the order they came."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        lock, waiting = self._queues.get(key) or (asyncio.Lock(), 0)
        self._queues[key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._queues[key]
            if waiting == 1:
                del self._queues[key]
            else:
                self._queues[key] = lock, waiting - 1
