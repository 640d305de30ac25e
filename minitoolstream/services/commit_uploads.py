"""Commit payloads that are in the bucket: the way from an event to a sequence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import PACK_PREFIX
from minitoolstream.domain.object_event import ObjectCreated, Rejected
from minitoolstream.domain.subject import upload_id_of
from minitoolstream.domain.upload import Receipt, State, StoredObject
from minitoolstream.ports import MetadataStore, Metrics
from minitoolstream.services.core import Core

_log = logging.getLogger(__name__)
_PER_CALL = 500
_PACE = 0.002  # seconds from call to call: less than a PUT takes, so who uploads one by one never waits for it
_REMEMBERED = 10_000
_REMEMBERED_FOR = 10.0


class Committer:
    """Batches almost without waiting: one call in flight, what arrives meanwhile forms the next."""

    def __init__(self, metadata: MetadataStore, metrics: Metrics) -> None:
        self._metadata = metadata
        self._metrics = metrics
        self._queue: deque[tuple[StoredObject, asyncio.Future[Receipt | None]]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._called_at = 0.0
        self._recent: dict[str, tuple[float, Receipt]] = {}

    async def commit(self, stored: StoredObject) -> Receipt | None:
        """What became of the upload; None when nobody knows it."""
        answer: asyncio.Future[Receipt | None] = asyncio.get_running_loop().create_future()
        self._queue.append((stored, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    def recent(self, upload_id: str) -> Receipt | None:
        """The receipt of an upload that was committed here moments ago: nothing changes it any more, and its producer
        is about to ask for it."""
        known = self._recent.get(upload_id)
        return known[1] if known and known[0] > time.monotonic() - _REMEMBERED_FOR else None

    def _remember(self, upload_id: str, receipt: Receipt) -> None:
        self._recent[upload_id] = (time.monotonic(), receipt)
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]

    async def _run(self) -> None:
        while self._queue:
            if (early := self._called_at + _PACE - time.monotonic()) > 0:
                await asyncio.sleep(early)
            self._called_at = time.monotonic()
            batch = [self._queue.popleft() for _ in range(min(_PER_CALL, len(self._queue)))]
            try:
                receipts = await self._metadata.commit_uploads([stored for stored, _ in batch])
            except Exception as error:  # every caller gets it; the loop serves the next
                if not isinstance(error, MtsError):
                    _log.exception("a commit failed")
                    error = MtsError("internal", "the commit failed; the log says more")
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            committed = 0
            for (stored, answer), receipt in zip(batch, receipts, strict=True):
                if receipt and receipt.state is State.COMMITTED and not receipt.duplicate:
                    committed += 1
                    self._remember(stored.upload_id, receipt)
                if not answer.done():
                    answer.set_result(receipt)
            self._metrics.committed(committed)


async def commit_created(core: Core, record: ObjectCreated | Rejected) -> Receipt | None:
    """Commit what an event announces. What is not ours or does not fit is recorded, never raised: only a part
    that is down is an error, and then the event may come again."""
    if isinstance(record, Rejected):
        await reject(core, record.object_name, record.reason)
        return None
    if record.bucket != core.settings["minio.bucket"]:
        await reject(core, record.object_name, "foreign_bucket")
        return None
    upload_id = upload_id_of(record.object_name)
    if upload_id is None:
        if not record.object_name.startswith(PACK_PREFIX):
            await reject(core, record.object_name, "foreign_object")
        return None
    receipt = await core.committer.commit(StoredObject(upload_id, record.object_name, record.size, seen=False))
    if receipt is not None and receipt.state is State.OPEN:
        stored = await core.payloads.find(record.object_name)
        if stored is not None:
            receipt = await core.committer.commit(StoredObject(upload_id, stored.name, stored.size))
    if receipt is None:
        await reject(core, record.object_name, "unknown_upload")
    elif receipt.state is State.REJECTED:
        core.metrics.rejected((receipt.reason or "rejected").partition(":")[0])
    return receipt


async def reject(core: Core, object_name: str, reason: str) -> None:
    core.metrics.rejected(reason)
    await core.metadata.reject_event(object_name[:1024], reason)
