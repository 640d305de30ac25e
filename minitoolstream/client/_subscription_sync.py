"""Subscriptions for ordinary code."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from minitoolstream.client._delivery_sync import Delivery
from minitoolstream.client._entries import Entry
from minitoolstream.client._handling import Handling
from minitoolstream.client._intake import Intake
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.domain.errors import MtsError

Handler = Callable[[Delivery], object]


class Subscription:
    """Messages as they come, one by one (`for`), in `batches`, or given to a handler (`run`).

    With automatic acks, a message counts as handled when the loop (of this thread) asks for the next one, or when
    its block ends without an exception; acks go out together, at least every second. It comes back by itself when
    a host restarts; what it cannot go on with is raised in the loop, as an `MtsError`. Close it, best with
    `with`: what was handled is acked, what was not comes to the next reader at once.

    Example:
        with client.subscribe("orders", durable="billing") as orders:
            for delivery in orders:
                print(delivery.sequence, delivery.data())
    """

    def __init__(
        self,
        thread: LoopThread,
        intake: Intake,
        *,
        auto: bool,
        ordered: bool,
        closed: Callable[[object], object],
    ) -> None:
        self._thread = thread
        self._intake = intake
        self._auto = auto
        self._ordered = ordered
        self._tell_closed = closed
        self._current: dict[int, list[Entry]] = {}

    def __enter__(self) -> Subscription:
        self._thread.run(self._intake.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish_current()
        self.close()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Delivery:
        self._finish_current()
        entry = self._intake.take_now() or self._thread.run(self._intake.take())
        if entry is None:
            raise StopIteration
        return self._handed([entry])[0]

    def batches(self, max_messages: int = 100, max_wait: float = 1.0) -> Iterator[list[Delivery]]:
        """Up to `max_messages` at a time; a batch waits up to `max_wait` seconds for more behind its first.

        Example: `for batch in orders.batches(max_messages=500): insert(batch)`
        """
        while True:
            self._finish_current()
            entries = self._thread.run(self._intake.take_many(max_messages, max_wait))
            if not entries:
                return
            yield self._handed(entries)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Ack many at once, see `Delivery.ack`."""
        self._thread.run(self._intake.ack([delivery._entry for delivery in deliveries]))

    def run(self, handler: Handler, *, concurrency: int = 1, retry_delay: float = 1.0) -> None:
        """Give every message to `handler`, until the subscription ends or is stopped; then close it.

        `concurrency` handlers run at once, in threads of their own; the rest as in `AsyncSubscription.run`.

        Example: `client.subscribe("orders", durable="billing").run(handle)`
        """
        self._thread.run(self._handle_all(handler, concurrency, retry_delay))

    async def _handle_all(self, handler: Handler, concurrency: int, retry_delay: float) -> None:
        loop = asyncio.get_running_loop()
        handling = Handling(self._intake, auto=self._auto, ordered=self._ordered, retry_delay=retry_delay)
        threads = ThreadPoolExecutor(max(concurrency, 1), "mts-handler")

        def call(entry: Entry) -> Awaitable[object]:
            delivery = Delivery(self._thread, entry, self._intake, lane=concurrency > 1)
            return loop.run_in_executor(threads, handler, delivery)

        try:
            await handling.run(call, concurrency)
        finally:
            await self._intake.close()
            self._tell_closed(self)
            threads.shutdown(wait=False)  # a handler that still runs must not hold up the event loop it may need

    def stop(self) -> None:
        """Hand out no more; loops and `run` end when what they have in hand is done. From any thread."""
        with contextlib.suppress(MtsError):  # the client is closed
            self._thread.call_soon(self._intake.stop)

    def close(self) -> None:
        """Stop, ack what is done, give back what is not. Idempotent."""
        with contextlib.suppress(MtsError):
            self._thread.run(self._intake.close())
        self._tell_closed(self)

    def _handed(self, entries: list[Entry]) -> list[Delivery]:
        if self._auto:
            self._current[threading.get_ident()] = entries
        return [Delivery(self._thread, entry, self._intake) for entry in entries]

    def _finish_current(self) -> None:
        for entry in self._current.pop(threading.get_ident(), ()):
            self._intake.done(entry)
