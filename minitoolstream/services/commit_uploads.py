"""Commit payloads that are in the bucket: the way from an event to a sequence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.keys import PACK_PREFIX
from minitoolstream.domain.object_event import ObjectCreated, Rejected
from minitoolstream.domain.subject import upload_id_of
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload
from minitoolstream.ports import MetadataStore, Metrics, ObjectInfo
from minitoolstream.request_id import request_id
from minitoolstream.services.core import Core

_log = logging.getLogger(__name__)
_PER_CALL = 500
_HOLD = 0.004  # seconds that the first of a call may wait for others: less than the store takes for a PUT under load
_TOGETHER = 8
_LATELY = 32  # commits
_REMEMBERED = 10_000
_REMEMBERED_FOR = 10.0


@dataclass(slots=True)
class _Waiting:
    stored: StoredObject
    answer: asyncio.Future[Receipt | None]
    since: float
    request_id: str | None


class Committer:
    """One call in flight, what arrives meanwhile forms the next. While several are under way at once, the first of a
    call waits a moment for others, so that they share it. One alone never waits."""

    def __init__(self, metadata: MetadataStore, metrics: Metrics) -> None:
        self._metadata = metadata
        self._metrics = metrics
        self._queue: deque[_Waiting] = deque()
        self._calling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._crowd = _Crowd()
        self._recent: dict[str, tuple[float, Receipt]] = {}

    async def commit(self, stored: StoredObject) -> Receipt | None:
        """What became of the upload; None when nobody knows it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt | None] = loop.create_future()
        self._queue.append(_Waiting(stored, answer, loop.time(), request_id.get()))
        self._crowd.enter()
        try:
            if self._calling is None:
                self._call_soon(loop)
            return await answer
        finally:
            self._crowd.leave()

    def recent(self, upload_id: str) -> Receipt | None:
        """The receipt of an upload that was committed here moments ago: nothing changes it any more, and its producer
        is about to ask for it."""
        known = self._recent.get(upload_id)
        return known[1] if known and known[0] > time.monotonic() - _REMEMBERED_FOR else None

    def _remember(self, upload_id: str, receipt: Receipt) -> None:
        self._recent[upload_id] = (time.monotonic(), receipt)
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]

    def _call_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        hold = self._queue[0].since + _HOLD - loop.time()
        if hold <= 0 or len(self._queue) >= min(_TOGETHER, self._crowd.most):
            self._call()
        elif self._timer is None:
            self._timer = loop.call_later(hold, self._call)

    def _call(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._calling = asyncio.create_task(self._commit())

    async def _commit(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(_PER_CALL, len(self._queue)))]
        request_id.set(batch[0].request_id)  # not that of whoever began this task
        try:
            receipts = await self._metadata.commit_uploads([waiting.stored for waiting in batch])
        except Exception as error:  # every caller gets it; the next call is made all the same
            _fail(batch, error)
        else:
            self._answer(batch, receipts)
        finally:
            self._calling = None
            if self._queue:
                self._call_soon(asyncio.get_running_loop())

    def _answer(self, batch: list[_Waiting], receipts: Sequence[Receipt | None]) -> None:
        committed = 0
        for waiting, receipt in zip(batch, receipts, strict=True):
            if receipt and receipt.state is State.COMMITTED and not receipt.duplicate:
                committed += 1
                self._remember(waiting.stored.upload_id, receipt)
            elif receipt and receipt.state is State.REJECTED:
                self._metrics.rejected((receipt.reason or "rejected").partition(":")[0])
            if not waiting.answer.done():
                waiting.answer.set_result(receipt)
        self._metrics.committed(committed)


class _Crowd:
    """How many were under way at once, at the most, lately."""

    def __init__(self) -> None:
        self._now = self._peak = self._peak_before = self._entered = 0

    def enter(self) -> None:
        self._now += 1
        self._entered += 1
        if self._entered % _LATELY == 0:
            self._peak_before, self._peak = self._peak, self._now
        elif self._now > self._peak:
            self._peak = self._now

    def leave(self) -> None:
        self._now -= 1

    @property
    def most(self) -> int:
        return max(self._peak, self._peak_before)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    if not isinstance(error, MtsError):
        _log.error("a commit failed", exc_info=error)
        error = MtsError("internal", "the commit failed; the log says more")
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


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
    return receipt


async def commit_found(core: Core, upload: Upload, stored: ObjectInfo) -> Receipt:
    """Commit an open upload whose object was found in the store."""
    committed = await core.committer.commit(StoredObject(upload.id, upload.object_name, stored.size))
    if committed is None:
        raise not_found("this upload ended while it was being completed", upload_id=upload.id)
    return replace(committed, duplicate=False)


async def reject(core: Core, object_name: str, reason: str) -> None:
    core.metrics.rejected(reason)
    await core.metadata.reject_event(object_name[:1024], reason)
