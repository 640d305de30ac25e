"""Inline publishes are packed together: one PUT and one commit for all that arrive while the last PUT runs.

Alone, a message waits for nobody; under load, the cost is shared. Each caller is answered after the commit, with
its own sequence.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES, MIB
from minitoolstream.domain.pack import InlineMessage, Pack, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import State
from minitoolstream.ports import MetadataStore, Metrics, PackResult, PayloadStore
from minitoolstream.services.core import Core, ServerClock

_log = logging.getLogger(__name__)
_PACK_BYTES = 8 * MIB
_PACK_CONTENT_TYPE = "application/vnd.mts.pack"
_FRAME_METADATA = 96  # an upper bound of what a message without headers of its own adds to a pack's head
_MARK_METADATA = 64  # and its producer or key, beside their own length
_QUEUE_BYTES = 64 * MIB

Waiting = tuple[InlineMessage, "asyncio.Future[PackResult]"]


class PackWriter:
    """Stores a pack and commits it, in two steps, so that the next pack's PUT need not wait for this commit."""

    def __init__(self, metadata: MetadataStore, payloads: PayloadStore, clock: ServerClock, metrics: Metrics) -> None:
        self._metadata = metadata
        self._payloads = payloads
        self._clock = clock
        self._metrics = metrics

    async def put(self, pack: Pack) -> str:
        """The new object's name. If this fails the object may be there: the reconciler removes it."""
        name = pack_name(new_id(await self._clock.now_ms()))
        try:
            await self._payloads.put_new(name, b"".join(pack.body), content_type=_PACK_CONTENT_TYPE)
        except MtsError as error:
            if error.code != "already_exists":  # nobody else makes this name: it was stored, and the answer was lost
                raise
        return name

    async def commit(self, name: str, pack: Pack) -> list[PackResult]:
        """A result for each message, in the order in which they were packed."""
        by_group = await self._metadata.commit_pack(name, pack.groups)
        if len(by_group) == 1:
            results = by_group[0]
        else:
            placed: dict[int, PackResult] = {}
            for group, answers in zip(pack.groups, by_group, strict=True):
                placed.update(zip(group.indexes, answers, strict=True))
            results = [placed[index] for index in range(len(placed))]
        committed = 0
        for result in results:
            receipt = result.receipt
            committed += receipt is not None and receipt.state is State.COMMITTED and not receipt.duplicate
        self._metrics.committed(committed)
        return results


class Packer:
    """Keeps one PUT in flight; what arrives meanwhile forms the next pack."""

    def __init__(self, writer: PackWriter) -> None:
        self.writer = writer
        self._queue: deque[Waiting] = deque()
        self._queued_bytes = 0
        self._running: asyncio.Task[None] | None = None

    async def publish(self, message: InlineMessage) -> PackResult:
        if self._queued_bytes + len(message.data) > _QUEUE_BYTES:
            raise MtsError("overloaded", "too many publishes are waiting for the object store; try again shortly")
        answer: asyncio.Future[PackResult] = asyncio.get_running_loop().create_future()
        self._queue.append((message, answer))
        self._queued_bytes += len(message.data)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        commit: asyncio.Task[None] | None = None
        while self._queue or commit is not None:
            packed = await self._put_next() if self._queue else None
            if commit is not None:
                await commit
            commit = asyncio.create_task(self._commit(*packed)) if packed else None

    async def _put_next(self) -> tuple[str, Pack, list[Waiting]] | None:
        batch = self._take()
        try:
            pack = build_pack([message for message, _ in batch])
            return await self.writer.put(pack), pack, batch
        except Exception as error:  # every caller gets it; the loop serves the next pack
            _fail(batch, error)
            return None

    async def _commit(self, name: str, pack: Pack, batch: Sequence[Waiting]) -> None:
        try:
            results = await self.writer.commit(name, pack)
        except Exception as error:  # as above
            _fail(batch, error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    def _take(self) -> list[Waiting]:
        batch: list[Waiting] = []
        subjects: set[str] = set()
        size = metadata = 0
        while self._queue and len(batch) < MAX_MESSAGES_PER_PACK:
            message, answer = self._queue[0]
            size += len(message.data)
            metadata += metadata_size(message, new_subject=message.subject not in subjects)
            if batch and (size > _PACK_BYTES or metadata > MAX_PACK_METADATA_BYTES):
                break
            self._queue.popleft()
            self._queued_bytes -= len(message.data)
            subjects.add(message.subject)
            batch.append((message, answer))
        return batch

    async def close(self) -> None:
        """Finish what was taken on."""
        if self._running is not None:
            await asyncio.wait([self._running])


def metadata_size(message: InlineMessage, *, new_subject: bool) -> int:
    """An upper bound of what a message adds to its pack's head; the first of a subject also names the subject."""
    size = _FRAME_METADATA + _json_size(message.content_type)
    if new_subject:
        size += _FRAME_METADATA + len(message.subject)
    if message.headers:
        size += _json_size(message.headers)
    if message.producer_id is not None:
        size += _MARK_METADATA + _json_size(message.producer_id)
    if message.key is not None:
        size += _MARK_METADATA + _json_size(message.key) + len(message.digest or "")
    return size


def _json_size(value: object) -> int:
    return len(msgspec.json.encode(value))


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    if not isinstance(error, MtsError):
        _log.error("a pack failed", exc_info=error)
        error = MtsError("internal", "packing failed; the log says more")
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)


async def publish_inline(core: Core, message: InlineMessage) -> PackResult:
    """Store one small message; a result that carries an error changed nothing."""
    if message.key is not None:
        message.digest = _digest(message)
    return await core.packer.publish(message)


def _digest(message: InlineMessage) -> str:
    """What makes two publishes with one Idempotency-Key the same: type, headers and payload."""
    hashed = hashlib.sha256(msgspec.json.encode([message.content_type, sorted(message.headers.items())]))
    hashed.update(message.data)
    return hashed.hexdigest()[:32]


async def publish_batch(core: Core, items: Sequence[InlineMessage | MtsError]) -> list[PackResult]:
    """Many messages: one pack, one commit, a result each. An item that is wrong by itself keeps its error and does
    not stop the others."""
    messages = [item for item in items if isinstance(item, InlineMessage)]
    if len(messages) == len(items):
        return await _store(core, messages)
    stored = iter(await _store(core, messages) if messages else ())
    return [PackResult(None, item) if isinstance(item, MtsError) else next(stored) for item in items]


async def _store(core: Core, messages: Sequence[InlineMessage]) -> list[PackResult]:
    pack = build_pack(messages)
    name = await core.packer.writer.put(pack)
    return await core.packer.writer.commit(name, pack)
