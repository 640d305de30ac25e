"""The heart of the buffered publishers: messages gather while a batch is under way, one batch at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from minitoolstream.client._batch import Frame
from minitoolstream.client._types import Result
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK
from minitoolstream.domain.upload import Receipt

AnyFuture = asyncio.Future[Receipt] | ThreadFuture[Receipt]


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """`linger`: seconds a message waits for company; `max_bytes`: what may wait in memory at most."""

    linger: float
    batch_bytes: int
    max_bytes: int


@dataclass(slots=True)
class _Entry:
    since: float
    frame: Frame
    future: AnyFuture


class Buffer:
    """`offer` may be called from any thread; `run`, `flush` and `close` belong to the event loop.

    `wake` makes the loop call `woken`, `room` tells waiting publishers that there is room again.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Frame]], Awaitable[list[Result]]],
        limits: BufferLimits,
        wake: Callable[[], object],
        room: Callable[[], object],
    ) -> None:
        self._send = send
        self._limits = limits
        self._wake = wake
        self._room = room
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._waiting_bytes = 0  # not sent yet
        self._held_bytes = 0  # the same, and those under way
        self._closed = False
        self._ended = False
        self._hurry = False
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._failures: list[MtsError] = []
        self._failed = 0

    def offer(self, frame: Frame, future: AnyFuture) -> bool:
        """False when there is no room. With nothing held, a message of any size is taken."""
        size = frame.size
        with self._lock:
            if self._closed:
                raise MtsError("closed", "this publisher is closed")
            if self._held_bytes and self._held_bytes + size > self._limits.max_bytes:
                return False
            before = self._waiting_bytes
            self._entries.append(_Entry(time.monotonic(), frame, future))
            self._waiting_bytes += size
            self._held_bytes += size
        if before == 0 or before < self._limits.batch_bytes <= before + size:
            self._wake()
        return True

    def woken(self) -> None:
        self._idle.clear()
        self._woken.set()

    async def run(self) -> None:
        """Send until closed and empty. When it is cancelled, nobody waits for ever: what is left fails."""
        try:
            await self._send_all()
        finally:
            self._end()

    async def _send_all(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._entries:
                if await self._company_may_come():
                    continue
                await self._send_batch(self._take())
            self._hurry = False
            self._idle.set()
            if self._closed:
                return

    async def flush(self) -> None:
        """Send all that waits now; raises when any message since the last flush was not published."""
        if not self._ended:
            self._hurry = True
            self.woken()
            await self._idle.wait()
        self.raise_failures()

    def raise_failures(self) -> None:
        """Raises when any message since the last call was not published."""
        if self._failed:
            failed, first = self._failed, self._failures[0]
            self._failed, self._failures = 0, []
            raise MtsError(
                "publish_failed",
                f"{failed} of the buffered messages were not published; the first error: {first.message}",
                {"failed": failed, "code": first.code, **first.details},
            ) from first

    def close(self) -> None:
        """No more offers; what waits is still sent."""
        with self._lock:
            self._closed = True
        self._hurry = True
        self.woken()

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            left, self._entries = self._entries, deque()
        unsent = Result(error=MtsError("closed", "not sent, because the client was closed"))
        for entry in left:
            self._resolve(entry.future, unsent)
        self._ended = True
        self._idle.set()
        self._room()

    async def _company_may_come(self) -> bool:
        """Wait for the rest of the linger; True when something happened meanwhile that is worth a look."""
        patience = self._entries[0].since + self._limits.linger - time.monotonic()
        if self._hurry or patience <= 0 or self._waiting_bytes >= self._limits.batch_bytes:
            return False
        try:
            async with asyncio.timeout(patience):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def _take(self) -> list[_Entry]:
        batch: list[_Entry] = []
        size = 0
        with self._lock:
            while self._entries and len(batch) < MAX_MESSAGES_PER_PACK:
                size += self._entries[0].frame.size
                if batch and size > self._limits.batch_bytes:
                    break
                batch.append(self._entries.popleft())
                self._waiting_bytes -= batch[-1].frame.size
        return batch

    async def _send_batch(self, batch: list[_Entry]) -> None:
        try:
            results = await self._send([entry.frame for entry in batch])
        except MtsError as error:
            results = [Result(error=error)] * len(batch)
        except asyncio.CancelledError:
            failure = MtsError("outcome_unknown", "the client was closed before the answer came")
            self._resolve_all(batch, [Result(error=failure)] * len(batch))
            raise
        except Exception as error:
            failure = MtsError("internal", f"unexpected {type(error).__name__}: {error}")
            results = [Result(error=failure)] * len(batch)
        self._resolve_all(batch, results)
        with self._lock:
            self._held_bytes -= sum(entry.frame.size for entry in batch)
        self._room()

    def _resolve_all(self, batch: list[_Entry], results: list[Result]) -> None:
        for entry, result in zip(batch, results, strict=True):
            self._resolve(entry.future, result)

    def _resolve(self, future: AnyFuture, result: Result) -> None:
        if result.error is not None:
            self._failed += 1
            if not self._failures:
                self._failures.append(result.error)
        with suppress(asyncio.InvalidStateError, InvalidStateError):  # cancelled, by another thread even now
            if result.error is not None:
                future.set_exception(result.error)
                if isinstance(future, asyncio.Future):
                    future.exception()  # flush reports it too: no second report when nobody looks at the future
            else:
                future.set_result(result.unwrap())
