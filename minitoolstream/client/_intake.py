"""The heart of subscriptions: reads ahead within limits, hands out, acks in batches, comes back after failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minitoolstream.client._entries import Entry, Stage
from minitoolstream.client._feeds import Feed
from minitoolstream.client._read import LARGEST_READ, Reader
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_FETCH_LIMIT

_log = logging.getLogger(__name__)
WAIT = 20.0
"""Seconds of one long poll."""
ACK_EVERY = 1.0
ACK_WHEN_IDLE = 0.1
ACK_MANY = 500
AGAIN_AFTER = 1.0
CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What is read ahead at most; `idle`: seconds without a message after which the subscription ends."""

    messages: int
    bytes: int
    idle: float | None = None


class Intake:
    """`take_now` and `done` may be called from any thread; the rest belongs to the event loop.

    `call_soon` gets a function to the event loop, from whichever thread.
    """

    def __init__(
        self, reader: Reader, feed: Feed, limits: Limits, call_soon: Callable[[Callable[[], object]], object]
    ) -> None:
        self.reader = reader
        self.feed = feed
        self._limits = limits
        self._call_soon = call_soon
        self._lock = threading.Lock()
        self._starting = asyncio.Lock()
        self._flushing = asyncio.Lock()
        self._queue: deque[Entry] = deque()
        self._held: deque[Entry] = deque()  # read, but too much for the byte limit as yet
        self._ahead = 0
        self._done = 0
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: MtsError | None = None
        self._opened = False
        self._ended = False
        self._stopped = False
        self._closed = False

    # -- handing out

    async def start(self) -> None:
        """Find or make what is read from; what is wrong with it is raised here."""
        async with self._starting:
            if self._opened or self._stopped:
                return
            await self.feed.open()
            self._opened = True
            self._spawn(self._pump(), self._flush_now_and_then(), self._keep())

    def _spawn(self, *work: Coroutine[Any, Any, None]) -> None:
        for one in work:
            task = asyncio.create_task(one)
            task.add_done_callback(self._ended_by)
            self._tasks.append(task)

    def _ended_by(self, task: asyncio.Task[None]) -> None:
        """A defect must end the loops that wait for messages, not leave them waiting."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("the subscription failed", exc_info=error)
            self._fail(MtsError("internal", f"the subscription failed: {error!r}; close it and subscribe again"))

    async def take(self) -> Entry | None:
        """The next message; None when the subscription has ended. Raises why it failed."""
        await self.start()
        while (entry := self.take_now()) is None:
            if self._failure and not self._stopped:
                raise self._failure
            if self._ended or self._stopped:
                return None
            self._news.clear()
            idle = asyncio.get_running_loop().call_later(ACK_WHEN_IDLE, self._hurry.set)
            try:
                await self._news.wait()
            finally:
                idle.cancel()
        return entry

    def take_now(self) -> Entry | None:
        """The next message if one is here."""
        with self._lock:
            entry = self._pop()
            wanting = bool(self._held) or len(self._queue) <= self._limits.messages // 2
        if wanting and not self._room.is_set():
            self._call_soon(self._room.set)
        return entry

    def _pop(self) -> Entry | None:
        if self._stopped or self._failure:
            return None
        while self._queue:
            entry = self._queue.popleft()
            self._ahead -= entry.cost
            if entry.stage is Stage.WAITING:
                entry.stage = Stage.HANDED
                return entry
        return None

    async def take_many(self, most: int, within: float) -> list[Entry]:
        """At least one unless the subscription has ended, and what comes within so many seconds behind it."""
        first = await self.take()
        if first is None:
            return []
        entries = [first]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while len(entries) < most:
                    entry = self.take_now() or await self.take()
                    if entry is None:
                        break
                    entries.append(entry)
        return entries

    def done(self, entry: Entry) -> None:
        """Handled: it is acked soon, together with others."""
        if entry.stage is not Stage.HANDED:
            return
        entry.stage = Stage.DONE
        self._done += 1
        if self._done >= ACK_MANY and not self._hurry.is_set():
            self._call_soon(self._hurry.set)

    async def ack(self, entries: Sequence[Entry], *, lane: bool = False) -> None:
        """Handled: acked when this returns. Raises when a lease or partition was lost."""
        for entry in entries:
            if entry.stage is Stage.HANDED:
                self.feed.cover(entry, lane=lane)
                entry.stage = Stage.DONE
        await self.flush()
        for entry in entries:
            if entry.loss:
                raise entry.loss

    async def undone(self, entry: Entry) -> None:
        """The transaction that acked it came to nothing: it must come again, and nothing may be acked over it."""
        if entry.loss:
            return  # it does, to whoever has its lease or partition, or from where the durable was moved to
        try:
            await self.feed.nack([entry], 0)
        except MtsError as error:
            if error.code == "mode_mismatch":
                self._fail(MtsError("not_handled", f"the transaction that acked message {entry.sequence} was aborted"))

    async def flush(self) -> None:
        async with self._flushing:  # whoever waits here has its acks sent together with others'
            self._done = 0
            if self.feed.dirty:
                await self.feed.flush()

    # -- reading ahead

    async def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await self._wait_for_room()
            wait, idle = WAIT, self._limits.idle
            if idle is not None:
                wait = min(WAIT, max(0.0, last + idle - loop.time()))
            limit = min(self._limits.messages - len(self._queue), MAX_FETCH_LIMIT)
            try:
                entries = await self.feed.poll(limit, wait)
            except MtsError as error:
                if not await self._survives(error):
                    return
                continue
            if entries:
                last = loop.time()
                self._held.extend(entries)
                self._admit()
            elif idle is not None and loop.time() >= last + idle and not self.feed.behind:
                self._ended = True
                self._news.set()
                return

    async def _wait_for_room(self) -> None:
        while self._held or len(self._queue) > self._limits.messages // 2:
            self._room.clear()
            self._admit()
            if self._held or len(self._queue) > self._limits.messages // 2:
                await self._room.wait()

    def _admit(self) -> None:
        """Into the queue, as long as the bytes that come along fit; those payloads are fetched now."""
        with self._lock:
            while self._held:
                cost = self._cost(self._held[0])
                if self._ahead and self._ahead + cost > self._limits.bytes:
                    break
                entry = self._held.popleft()
                if cost and entry.stage is Stage.WAITING:
                    entry.payload.fetch(partial(self.reader.stored, entry.message))
                entry.cost = cost
                self._ahead += cost
                self._queue.append(entry)
        self._news.set()

    def _cost(self, entry: Entry) -> int:
        """Bytes of memory before it is handed out. A payload that is too large stays in the store until asked for."""
        if entry.payload.stored is not None:
            return len(entry.payload.stored)
        fits = entry.message.size <= min(LARGEST_READ, self._limits.bytes)
        return entry.message.size if fits and not entry.message.unverified else 0

    async def _survives(self, error: MtsError) -> bool:
        """Whether to go on: a host that was there comes back, everything else is for the reader to know."""
        if not (error.retryable and self.feed.reached):
            self._fail(error)
            return False
        _log.warning("the subscription goes on trying: %s", error.message)
        await asyncio.sleep(AGAIN_AFTER)
        return True

    def _fail(self, error: MtsError) -> None:
        self._failure = self._failure or error
        self._news.set()

    async def _flush_now_and_then(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ACK_EVERY):
                    await self._hurry.wait()
            self._hurry.clear()
            await self._repeatedly(self.flush)

    async def _keep(self) -> None:
        while self.feed.beat is not None:
            await asyncio.sleep(self.feed.beat)
            await self._repeatedly(self.feed.keep)

    async def _repeatedly(self, act: Callable[[], Awaitable[None]]) -> None:
        """What fails for now is done the next time."""
        try:
            await act()
        except MtsError as error:
            await self._survives(error)

    # -- ending

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped = True
        self._news.set()

    async def close(self) -> None:
        """Ack what is done, give back what is not, leave. Idempotent."""
        self.stop()
        if self._closed:
            return
        self._closed = True
        async with self._starting:
            pass
        if not self._opened:
            return
        pump, *others = self._tasks
        await _cancelled([pump])
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                try:
                    await self.flush()
                finally:
                    await self.feed.close()
        except (MtsError, TimeoutError) as error:
            _log.warning("the subscription ended without its last acks: %s", error or "no answer in time")
        for entry in (*self._queue, *self._held):
            entry.payload.cancel()
        await _cancelled(others)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
