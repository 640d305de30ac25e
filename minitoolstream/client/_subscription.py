"""Subscriptions for asyncio: messages as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from types import TracebackType

from minitoolstream.client._delivery import AsyncDelivery
from minitoolstream.client._entries import Entry
from minitoolstream.client._handling import Handling
from minitoolstream.client._intake import Intake

AsyncHandler = Callable[[AsyncDelivery], Awaitable[object]]


class AsyncSubscription:
    """Messages as they come, one by one (`async for`), in `batches`, or given to a handler (`run`).

    With automatic acks, a message counts as handled when the loop asks for the next one, or when its block ends
    without an exception (so one loop at a time: `run` has several handlers at once); acks go out together, at least
    every second. It comes back by itself when a host
    restarts; what it cannot go on with is raised in the loop, as an `MtsError`. Close it, best with
    `async with`: what was handled is acked, what was not comes to the next reader at once.

    Example:
        async with client.subscribe("orders", durable="billing") as orders:
            async for delivery in orders:
                print(delivery.sequence, await delivery.data())
    """

    def __init__(self, intake: Intake, *, auto: bool, ordered: bool, closed: Callable[[object], object]) -> None:
        self._intake = intake
        self._auto = auto
        self._ordered = ordered
        self._tell_closed = closed
        self._current: list[Entry] = []

    async def __aenter__(self) -> AsyncSubscription:
        await self._intake.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish_current()
        await self.close()

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> AsyncDelivery:
        self._finish_current()
        entry = self._intake.take_now() or await self._intake.take()
        if entry is None:
            raise StopAsyncIteration
        return self._handed([entry])[0]

    async def batches(
        self, max_messages: int = 100, max_wait: float = 1.0
    ) -> AsyncGenerator[list[AsyncDelivery], None]:
        """Up to `max_messages` at a time; a batch waits up to `max_wait` seconds for more behind its first.

        Example: `async for batch in orders.batches(max_messages=500): await insert(batch)`
        """
        while True:
            self._finish_current()
            entries = await self._intake.take_many(max_messages, max_wait)
            if not entries:
                return
            yield self._handed(entries)

    async def ack(self, deliveries: Iterable[AsyncDelivery]) -> None:
        """Ack many at once, see `AsyncDelivery.ack`."""
        await self._intake.ack([delivery._entry for delivery in deliveries])

    async def run(self, handler: AsyncHandler, *, concurrency: int = 1, retry_delay: float = 1.0) -> None:
        """Give every message to `handler`, until the subscription ends or is stopped; then close it.

        `concurrency` handlers run at once; ordered readers keep the order, so theirs are of different
        partitions. What a handler returns from is acked, unless acks are manual. When it raises, a shared
        message is given back for `retry_delay` seconds, twice as long with each try; an ordered subscription
        ends there with the error `handler_failed`, and nothing from that message on is acked.

        Example: `await client.subscribe("orders", durable="billing").run(handle)`
        """
        handling = Handling(self._intake, auto=self._auto, ordered=self._ordered, retry_delay=retry_delay)

        def call(entry: Entry) -> Awaitable[object]:
            return handler(AsyncDelivery(entry, self._intake, lane=concurrency > 1))

        try:
            await handling.run(call, concurrency)
        finally:
            await self.close()

    def stop(self) -> None:
        """Hand out no more; loops and `run` end when what they have in hand is done."""
        self._intake.stop()

    async def close(self) -> None:
        """Stop, ack what is done, give back what is not. Idempotent."""
        try:
            await self._intake.close()
        finally:
            self._tell_closed(self)

    def _handed(self, entries: list[Entry]) -> list[AsyncDelivery]:
        if self._auto:
            self._current = entries
        return [AsyncDelivery(entry, self._intake) for entry in entries]

    def _finish_current(self) -> None:
        for entry in self._current:
            self._intake.done(entry)
        self._current = []
