"""Rows that many write at once, in few batches: a round trip costs the engine more than a row does, and so does each
time that it must begin anew."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Self

from minitoolstream.ports import CatalogStore
from minitoolstream.ports.catalog import Change

_UNDER_WAY = 2
_REST, _LONGEST_REST = 0.002, 0.5
"""Seconds from a batch's beginning to the next, for each of its changes, and the most: what wakes an engine for a few
rows costs it more than they do. The more there is to write, the more goes together; what is alone does not wait."""
_MOST = 2000
"""Changes that are written at once."""
_Steps = Sequence[Sequence[Change]]


class Together:
    """What comes while others are being written, or a moment after they began as long as more is `coming`, goes with
    the next. Steps of one call keep their order, and are there when it returns, as with the store's own
    `write_in_order`. Nothing is written any more behind its end as a context, also of what callers did not wait for."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._waiting: deque[tuple[_Steps, asyncio.Future[None]]] = deque()
        self._writing: set[asyncio.Task[None]] = set()
        self._not_before = 0.0
        self._coming = 0
        self._nothing_comes = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writing:
            await asyncio.wait(self._writing)

    async def write(self, *steps: Sequence[Change]) -> None:
        if not any(steps):
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((steps, done))
        if len(self._writing) < _UNDER_WAY:
            self._writing.add(asyncio.create_task(self._write()))
        await done

    @contextlib.contextmanager
    def coming(self) -> Iterator[None]:
        """Around what ends in a call of `write`: as long as there is any, others wait for it a moment."""
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            if not self._coming:
                self._nothing_comes.set()

    async def until_next(self) -> None:
        """Returns when the next batch may begin: at once when nothing more comes. Whoever reads then finds the engine
        awake."""
        while self._coming and (pause := self._not_before - time.monotonic()) > 0:
            self._nothing_comes.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._nothing_comes.wait()

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self.until_next()
                if self._waiting:  # else the other has taken it
                    await self._write_next()
        finally:
            # At once: whoever was just told that his rows are there may write again before anything else happens.
            self._writing.discard(_this_task())

    async def _write_next(self) -> None:
        calls, callers, count = self._take()
        self._not_before = time.monotonic() + min(_REST * count, _LONGEST_REST)
        steps = [[change for some in step for change in some] for step in zip_longest(*calls, fillvalue=())]
        try:
            await self._store.write_in_order(steps)
        except BaseException as error:  # every caller gets it
            for caller in callers:
                if not caller.done():
                    caller.set_exception(error)
        else:
            for caller in callers:
                if not caller.done():
                    caller.set_result(None)

    def _take(self) -> tuple[list[_Steps], list[asyncio.Future[None]], int]:
        calls: list[_Steps] = []
        callers: list[asyncio.Future[None]] = []
        count = 0
        while self._waiting and (not calls or count + _length(self._waiting[0][0]) <= _MOST):
            steps, caller = self._waiting.popleft()
            calls.append(steps)
            callers.append(caller)
            count += _length(steps)
        return calls, callers, count


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _length(steps: _Steps) -> int:
    return sum(map(len, steps))
