"""Waiting receipts are woken by the commit: one long call a process, however many wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from minitoolstream.ports import MetadataStore

_log = logging.getLogger(__name__)
_LONG_CALL = 20.0
_PAUSE_AFTER_FAILURE = 0.2


class Watcher:
    """Sets the event of every waiter whose upload changed; all of them when changes may have been missed."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, upload_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the upload may have changed. Begin to watch, then read the state."""
        changed = asyncio.Event()
        self._waiting.setdefault(upload_id, set()).add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield changed
        finally:
            waiters = self._waiting[upload_id]
            waiters.discard(changed)
            if not waiters:
                del self._waiting[upload_id]

    async def _run(self) -> None:
        cursor = ("", 0)  # known to nobody: the first answer says where the changes stand, and wakes all
        while self._waiting:
            try:
                changes = await self._metadata.wait_for_changes(cursor, _LONG_CALL)
            except Exception as error:  # whoever waits depends on this loop
                _log.warning("waiting for changes failed, trying again: %r", error)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                cursor = ("", 0)
                continue
            cursor = changes.cursor
            woken = list(self._waiting) if changes.lost else changes.upload_ids
            for upload_id in woken:
                for changed in self._waiting.get(upload_id, ()):
                    changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
