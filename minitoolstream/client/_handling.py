"""Handlers at work on a subscription: several at once, in order where order is promised."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from minitoolstream.client._entries import Entry
from minitoolstream.client._intake import Intake
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.pauses import doubled

_log = logging.getLogger(__name__)
_LONGEST_DELAY = 60.0
_WAITING = 8
"""Messages that may wait behind their partition's handler, for each handler."""

Call = Callable[[Entry], Awaitable[object]]


class Handling:
    def __init__(self, intake: Intake, *, auto: bool, ordered: bool, retry_delay: float) -> None:
        self._intake = intake
        self._auto = auto
        self._ordered = ordered
        self._retry_delay = retry_delay

    async def run(self, call: Call, concurrency: int) -> None:
        """Until the subscription ends. The first failure stops it, and is raised when the other handlers are done."""
        if concurrency < 1:
            raise bad_request("concurrency is at least 1", field="concurrency")
        if self._ordered and concurrency > 1:
            await self._in_lanes(call, concurrency)
            return
        outcomes = await asyncio.gather(*(self._work(call) for _ in range(concurrency)), return_exceptions=True)
        _raise_first(outcomes)

    async def _work(self, call: Call) -> None:
        try:
            while entry := self._intake.take_now() or await self._intake.take():
                await self._handle(call, entry)
        finally:
            self._intake.stop()

    async def _in_lanes(self, call: Call, concurrency: int) -> None:
        """One message of a partition at a time, `concurrency` partitions at once."""
        lanes: dict[int, deque[Entry]] = {}
        working: set[asyncio.Task[None]] = set()
        turns = asyncio.Semaphore(concurrency)
        places = asyncio.Semaphore(concurrency * _WAITING)
        failures: list[BaseException] = []

        async def walk(lane: deque[Entry]) -> None:
            try:
                while lane:
                    async with turns:
                        if not failures:
                            await self._handle(call, lane[0])
                    lane.popleft()
                    places.release()
            except BaseException as error:
                failures.append(error)
                self._intake.stop()
                places.release()
                raise

        try:
            while entry := await self._intake.take():
                await places.acquire()
                lane = lanes.setdefault(entry.message.partition, deque())
                lane.append(entry)
                if len(lane) == 1:
                    task = asyncio.create_task(walk(lane))
                    working.add(task)
                    task.add_done_callback(working.discard)
        finally:
            self._intake.stop()
            await asyncio.gather(*working, return_exceptions=True)
        _raise_first(failures)

    async def _handle(self, call: Call, entry: Entry) -> None:
        try:
            await call(entry)
        except Exception as error:
            await self._failed(entry, error)
        else:
            if self._auto:
                self._intake.done(entry)

    async def _failed(self, entry: Entry, error: Exception) -> None:
        where = f"message {entry.sequence} of {entry.message.subject}"
        if self._ordered:
            _log.error("a handler failed; its subscription ends at %s", where, exc_info=error)
            details = {"subject": entry.message.subject, "sequence": entry.sequence}
            raise MtsError("handler_failed", f"the handler failed at {where}: {error!r}", details) from error
        delay = doubled(self._retry_delay, entry.deliveries - 1, _LONGEST_DELAY)
        # When a part is away, the handler could not try: an outage must not use up the tries of a whole queue.
        untried = isinstance(error, MtsError) and error.retryable
        is_dead = not untried and self._intake.feed.is_last_try(entry)
        then = "it was the last try, and is a dead letter now" if is_dead else f"it is given back for {delay:g} s"
        _log.error("a handler failed at %s; %s", where, then, exc_info=error)
        try:
            await self._intake.feed.nack([entry], delay, untried=untried)
        except MtsError as problem:
            if not problem.retryable:
                raise
            _log.warning("%s comes back when its lease ends: %s", where, problem.message)


def _raise_first(outcomes: list[BaseException | None] | list[BaseException]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
