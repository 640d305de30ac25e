"""Inline publishes are packed together: one PUT and one commit for all that arrive while the last PUT runs.

Alone, a message waits for nobody; under load, the cost is shared. Each caller is answered after the commit, with
its own sequence.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES, MIB
from minitoolstream.domain.pack import Group, InlineMessage, Pack, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import State
from minitoolstream.ports import MetadataStore, Metrics, PackResult, PayloadStore
from minitoolstream.request_id import request_id
from minitoolstream.services.core import Core, ServerClock
from minitoolstream.services.lane_cache import LaneCache
from minitoolstream.services.retention_classes import RetentionClasses

_log = logging.getLogger(__name__)
_PACK_BYTES = 8 * MIB
PACK_CONTENT_TYPE = "application/vnd.mts.pack"
_FRAME_METADATA = 96  # an upper bound of what a message without headers of its own adds to a pack's head
_GROUP_METADATA = 112  # what a group of frames adds, beside its subject
_MARK_METADATA = 64  # a message's producer, key or group, beside their own length
_QUEUE_BYTES = 64 * MIB
_LOOKED_AT = 64  # answers of a group, to learn where its subject's messages go

Waiting = tuple[InlineMessage, "asyncio.Future[PackResult]", str | None]  # the last is the id of its request


class PackWriter:
    """Stores a pack and commits it, in two steps, so that the next pack's PUT need not wait for this commit."""

    def __init__(
        self,
        metadata: MetadataStore,
        payloads: PayloadStore,
        clock: ServerClock,
        metrics: Metrics,
        lanes: LaneCache,
        *,
        retention: RetentionClasses | None = None,
    ) -> None:
        self._metadata = metadata
        self._payloads = payloads
        self._clock = clock
        self._metrics = metrics
        self._lanes = lanes
        self.retention = retention or RetentionClasses()

    def build(self, messages: Sequence[InlineMessage]) -> Pack:
        return build_pack(messages, self._lanes.lanes)

    async def put(self, pack: Pack) -> str:
        """The new object's name. If this fails the object may be there: the reconciler removes it."""
        name = pack_name(new_id(await self._clock.now_ms()))
        await self._payloads.put_fresh(name, b"".join(pack.body), content_type=PACK_CONTENT_TYPE)
        return name

    async def commit(self, name: str, pack: Pack, *, all_or_none: bool = False) -> list[PackResult]:
        """A result for each message, in the order in which they were packed."""
        by_group = await self._metadata.commit_pack(name, pack.groups, all_or_none=all_or_none)
        for group, answers in zip(pack.groups, by_group, strict=True):
            self._learn(group.subject, answers)
            self.retention.learn(group.subject, answers.retention)
        results = _placed(pack.groups, by_group)
        committed = State.COMMITTED
        receipts = [result.receipt for result in results]
        self._metrics.committed(sum([r is not None and r.state is committed and not r.duplicate for r in receipts]))
        return results

    def _learn(self, subject: str, answers: Sequence[PackResult]) -> None:
        """Some of a pack's places tell enough of its subject's lanes."""
        some = answers[:: len(answers) // _LOOKED_AT + 1]
        self._lanes.learn(subject, {r.partition for answer in some if (r := answer.receipt) and r.partition})


def _placed(groups: Sequence[Group], by_group: Sequence[list[PackResult]]) -> list[PackResult]:
    """The answers in the order of the messages."""
    if len(by_group) == 1 and isinstance(groups[0].indexes, range):
        return by_group[0]
    placed: dict[int, PackResult] = {}
    for group, answers in zip(groups, by_group, strict=True):
        placed.update(zip(group.indexes, answers, strict=True))
    return [placed[index] for index in range(len(placed))]


class _Track:
    """Where packs are made one after the other: a PUT at a time, and beside it the commit of the pack before."""

    def __init__(self) -> None:
        self.putting = False
        self.last: asyncio.Task[None] | None = None
        self.unfinished: list[set[str]] = []

    def holds(self, subject: str) -> bool:
        return any(subject in subjects for subjects in self.unfinished)


class Packer:
    """Keeps a PUT in flight; what arrives meanwhile forms the next pack. Those of a subject are committed in order.

    A message of a subject that has nothing under way need not wait for the PUT of others: there are two tracks, and a
    subject is on one of them at a time.
    """

    def __init__(self, writer: PackWriter) -> None:
        self.writer = writer
        self._queue: deque[Waiting] = deque()
        self._queued_bytes = 0
        self._tracks = (_Track(), _Track())

    async def publish(self, message: InlineMessage) -> PackResult:
        if self._queued_bytes + len(message.data) > _QUEUE_BYTES:
            raise MtsError("overloaded", "too many publishes are waiting for the object store; try again shortly")
        answer: asyncio.Future[PackResult] = asyncio.get_running_loop().create_future()
        self._queue.append((message, answer, request_id.get()))
        self._queued_bytes += len(message.data)
        first, second = self._tracks
        if not first.putting and not second.holds(message.subject):
            self._begin(first)
        elif not second.putting and not first.holds(message.subject):
            self._begin(second)
        return await answer

    def _begin(self, track: _Track) -> None:
        if self._queue and not track.putting:
            track.putting = True
            track.last = asyncio.create_task(self._store(track, track.last))

    async def _store(self, track: _Track, before: asyncio.Task[None] | None) -> None:
        batch = self._take(track)
        if not batch:
            track.putting = False
            await _ended(before)
            return
        request_id.set(batch[0][2])  # not that of whoever began this task
        subjects = {message.subject for message, *_ in batch}
        track.unfinished.append(subjects)
        try:
            pack, name = await self._put(track, batch, before)
            results = await self.writer.commit(name, pack)
        except Exception as error:  # every caller gets it; the next pack is served all the same
            _fail(batch, error)
        else:
            for (_, answer, _), result in zip(batch, results, strict=True):
                if not answer.done():
                    answer.set_result(result)
        finally:
            track.unfinished.remove(subjects)

    async def _put(
        self, track: _Track, batch: Sequence[Waiting], before: asyncio.Task[None] | None
    ) -> tuple[Pack, str]:
        """Returns when this pack's commit may begin. The next PUT may as well: no more than one commit waits."""
        try:
            pack = self.writer.build([message for message, *_ in batch])
            return pack, await self.writer.put(pack)
        finally:
            await _ended(before)
            track.putting = False
            # Not at once: this commit goes out first, and what was read together with the store's answer still joins.
            asyncio.get_running_loop().call_soon(self._begin, track)

    def _take(self, track: _Track) -> list[Waiting]:
        """What forms the next pack: nothing of subjects on the other track. It ends as a whole, so what ends at another
        time waits for one of its own. All stay in their order (rule 16)."""
        batch: list[Waiting] = []
        others: list[Waiting] = []
        codecs: dict[str, str | None] = {}
        size = metadata = 0
        (other,) = (one for one in self._tracks if one is not track)
        class_of = self.writer.retention.class_of
        wanted: object = None
        while self._queue and max(len(batch), len(others)) < MAX_MESSAGES_PER_PACK:
            message = self._queue[0][0]
            if other.holds(message.subject) or (batch and class_of(message.subject) != wanted):
                others.append(self._queue.popleft())
                continue
            if not batch:
                wanted = class_of(message.subject)
            size += len(message.data)
            metadata += metadata_size(message, codecs)
            if batch and (size > _PACK_BYTES or metadata > MAX_PACK_METADATA_BYTES):
                break
            batch.append(self._queue.popleft())
            self._queued_bytes -= len(message.data)
            codecs.setdefault(message.subject, message.codec)
        self._queue.extendleft(reversed(others))
        return batch

    async def close(self) -> None:
        """Finish what was taken on."""
        while running := [track.last for track in self._tracks if track.last is not None and not track.last.done()]:
            await asyncio.wait(running)


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        await asyncio.wait([task])


def metadata_size(message: InlineMessage, codecs: Mapping[str, str | None]) -> int:
    """An upper bound of what a message adds to its pack's head. `codecs`: that of each subject's first message; one of
    another codec may lie between two of that, and so begin a group and make the next one begin another."""
    size = _FRAME_METADATA + _json_size(message.content_type)
    if message.subject not in codecs:
        size += _GROUP_METADATA + len(message.subject)
    elif codecs[message.subject] != message.codec:
        size += 2 * (_GROUP_METADATA + len(message.subject))
    if message.headers:
        size += _json_size(message.headers)
    if message.producer_id is not None:
        size += _MARK_METADATA + _json_size(message.producer_id)
    if message.key is not None:
        size += _MARK_METADATA + _json_size(message.key) + len(message.digest or "")
    if message.group is not None:
        size += _MARK_METADATA + _json_size(message.group)
    if message.transaction_id is not None:  # may be a group of its own
        size += _GROUP_METADATA + len(message.subject) + len(message.transaction_id)
    return size


def _json_size(value: object) -> int:
    return len(msgspec.json.encode(value))


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    if not isinstance(error, MtsError):
        _log.error("a pack failed", exc_info=error)
        error = MtsError("internal", "packing failed; the log says more")
    for _, answer, _ in batch:
        if not answer.done():
            answer.set_exception(error)


async def publish_inline(core: Core, message: InlineMessage) -> PackResult:
    """Store one small message; a result that carries an error changed nothing."""
    if message.key is not None:
        message.digest = _digest(message)
    return await core.packer.publish(message)


def _digest(message: InlineMessage) -> str:
    """What makes two publishes with one Idempotency-Key the same: all that was sent."""
    described: list[object] = [message.content_type, sorted(message.headers.items())]
    if message.group is not None or message.codec is not None:
        described += [message.group, message.codec]
    hashed = hashlib.sha256(msgspec.json.encode(described))
    hashed.update(message.data)
    return hashed.hexdigest()[:32]
