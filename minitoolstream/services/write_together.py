"""Rows that many write at once, in few batches: a round trip costs the engine more than a row does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from minitoolstream.ports import CatalogStore
from minitoolstream.ports.catalog import Change

_UNDER_WAY = 2


class Together:
    """What comes while others are being written goes with the next. Changes of one call are never split, and they are
    there when it returns, as with the store's own `write`."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._waiting: deque[tuple[Sequence[Change], asyncio.Future[None]]] = deque()
        self._writing: set[asyncio.Task[None]] = set()

    async def write(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, done))
        if len(self._writing) < _UNDER_WAY:
            task = asyncio.create_task(self._write())
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
        await done

    async def _write(self) -> None:
        while self._waiting:
            batch, callers = self._next()
            try:
                await self._store.write(batch)
            except BaseException as error:  # every caller gets it
                for caller in callers:
                    if not caller.done():
                        caller.set_exception(error)
            else:
                for caller in callers:
                    if not caller.done():
                        caller.set_result(None)

    def _next(self) -> tuple[list[Change], list[asyncio.Future[None]]]:
        batch: list[Change] = []
        callers: list[asyncio.Future[None]] = []
        while self._waiting and (not batch or len(batch) + len(self._waiting[0][0]) <= self._store.batch):
            changes, caller = self._waiting.popleft()
            batch += changes
            callers.append(caller)
        return batch, callers
