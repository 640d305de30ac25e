"""A metadata store in memory, for tests of services. The contract tests hold it against real Tarantool."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from minitoolstream.adapters.memory.order import Lane, ManualClock, Order
from minitoolstream.adapters.memory.producers import Producer
from minitoolstream.adapters.memory.rows import NEVER, Key, Trash, UploadRow, made_at_ms
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, not_found, unavailable
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME_PREFIX, Group
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload, UploadSpec
from minitoolstream.ports import Changes, DueUploads, ExtentPage, NewUpload, PackResult

_KEY_LIFE = 24 * 3600
_LONGEST_PAUSE = 3600
_PER_TRANSACTION = 500
_REJECTED_SHOWN = 20


class MemoryMetadata:
    """Fulfils `ports.MetadataStore`. A test may move `clock`, set `down`, and look at `trash`."""

    def __init__(self, settings: Settings, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.order = Order(self.clock)
        self.trash: dict[str, Trash] = {}
        self.down = False
        self._life = int(settings["uploads.ticket_life"])
        self._producer_life = int(settings["uploads.producer_ticket_life"])
        self._max_life = int(settings["uploads.max_life"])
        self._first_look = int(settings["uploads.first_look"])
        self._grace = int(settings["uploads.put_grace"])
        self._pack_grace = int(settings["packs.grace"])
        self._subjects: dict[str, tuple[int, int]] = {}
        self._uploads: dict[str, UploadRow] = {}
        self._producers: dict[tuple[str, str], Producer] = {}
        self._objects: dict[str, int] = {}
        self._keys: dict[tuple[str, str], Key] = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self._rejected: list[dict[str, Any]] = []
        self._packs_cursor = ""
        self._boot = uuid.uuid4().hex
        self._changes: list[str] = []
        self._changed = asyncio.Event()

    # -- uploads

    async def create_uploads(self, subject: str, specs: Sequence[UploadSpec]) -> list[NewUpload]:
        self._must_be_up()
        before = copy.deepcopy((self._subjects, self._uploads, self._producers))
        try:
            self._ensure_subject(subject)
            return [self._create(subject, spec) for spec in specs]
        except MtsError:
            self._subjects, self._uploads, self._producers = before
            raise

    def _create(self, subject: str, spec: UploadSpec) -> NewUpload:
        owner = None
        if spec.producer_id is not None:
            assert spec.seqno is not None
            owner = self._ensure_producer(subject, spec.producer_id)
            owner.check_epoch(spec.epoch)
            if (sequence := owner.stored_sequence(spec.seqno)) is not None:
                return NewUpload(None, self._placed(Receipt(None, State.COMMITTED, duplicate=True), sequence))
            if spec.seqno in owner.pending:
                return self._reopen(self._uploads[owner.pending[spec.seqno]], spec)
        now, upload_id = self.clock.seconds(), self._new_id()
        row = UploadRow(
            id=upload_id,
            subject=subject,
            object_name=f"m/{subject}/{self._subjects[subject][0]}/{upload_id}",
            size=spec.size,
            content_type=spec.content_type,
            sha256=spec.sha256,
            headers=dict(spec.headers),
            owner=owner,
            seqno=spec.seqno,
            epoch=owner.epoch if owner else None,
            sizes=list(spec.sizes) if spec.sizes else None,
            created_at=now,
            expires_at=now + (self._producer_life if owner else self._life),
            due_at=now + self._first_look,
            part_size=spec.part_size,
        )
        self._add(row)
        return NewUpload(row.described(), None)

    def _reopen(self, row: UploadRow, spec: UploadSpec) -> NewUpload:
        if (row.size, row.sha256, row.content_type) != (spec.size, spec.sha256, spec.content_type):
            raise MtsError(
                "upload_conflict",
                "this seqno is announced already with another size, type or checksum",
                {"upload_id": row.id, "seqno": spec.seqno},
            )
        if row.state is State.STORED:
            return NewUpload(None, self._receipt(row))
        self._prolong(row, self._producer_life)
        return NewUpload(row.described(), None)

    def _add(self, row: UploadRow) -> None:
        self._uploads[row.id] = row
        if row.owner is not None:
            assert row.seqno is not None
            row.owner.pending[row.seqno] = row.id

    def _prolong(self, row: UploadRow, life: int) -> None:
        row.expires_at = max(row.expires_at, min(self.clock.seconds() + life, row.created_at + self._max_life))

    async def get_upload(self, upload_id: str) -> tuple[Upload, Receipt] | None:
        self._must_be_up()
        row = self._uploads.get(upload_id)
        return (row.described(), self._receipt(row)) if row else None

    async def set_multipart(self, upload_id: str, multipart_id: str) -> Upload:
        row = self._open(upload_id)
        row.multipart_id = row.multipart_id or multipart_id
        return row.described()

    async def extend_upload(self, upload_id: str) -> Upload:
        row = self._open(upload_id)
        self._prolong(row, self._life)
        return row.described()

    async def commit_uploads(self, stored: Sequence[StoredObject]) -> list[Receipt | None]:
        self._must_be_up()
        return [self._commit(item) for item in stored]

    def _commit(self, stored: StoredObject) -> Receipt | None:
        row = self._uploads.get(stored.upload_id)
        if row is None:
            return None
        if row.state is State.OPEN:
            self._commit_open(row, stored.size)
            return self._receipt(row)
        if row.state.final:
            self._discard_late(row)
        return self._receipt(row, duplicate=row.state is State.COMMITTED)

    def _commit_open(self, row: UploadRow, size: int) -> None:
        reason = None
        if row.object_name in self.trash:
            reason = "already_deleted"
        elif row.size != size:
            reason = f"size_mismatch: announced {row.size}, stored {size}"
        if reason:
            self._record_rejected(row.object_name, reason)
            self._end(row, State.REJECTED, reason)
        elif row.owner is not None and row.owner.first_pending() != (row.seqno, row.id):
            row.state, row.due_at = State.STORED, NEVER
            self._push(row.id)
        else:
            self._make_visible(row)
            self._free_waiting(row.owner)

    def _make_visible(self, row: UploadRow) -> None:
        byte_from = row.byte_from
        if row.sizes is not None:
            byte_from = row.size - sum(size + FRAME_PREFIX for size in row.sizes)
        sizes = row.sizes or [row.size]
        first, _ = self.order.append(
            row.subject,
            row.object_name,
            sizes,
            headers=row.headers,
            content_type=row.content_type,
            byte_from=byte_from,
            sha256=row.sha256,
            keep_sizes=row.sizes is not None,
        )
        row.sequence = first + len(sizes) - 1
        if row.owner is not None:
            assert row.seqno is not None
            row.owner.record(row.seqno, row.sequence)
        self._finish(row, State.COMMITTED)

    def _free_waiting(self, owner: Producer | None) -> None:
        for _ in range(_PER_TRANSACTION):
            first = owner.first_pending() if owner else None
            if first is None or self._uploads[first[1]].state is not State.STORED:
                return
            self._make_visible(self._uploads[first[1]])
        if owner and (first := owner.first_pending()):
            self._uploads[first[1]].due_at = 0

    def _end(self, row: UploadRow, state: State, reason: str) -> None:
        if row.byte_from is not None:
            self._objects[row.object_name] -= 1
            if not self._objects[row.object_name]:
                self._discard(row.object_name, reason)
        else:
            self._discard(row.object_name, reason, row.multipart_id)
        row.reason = reason
        self._finish(row, state)
        self._free_waiting(row.owner)

    def _finish(self, row: UploadRow, state: State) -> None:
        row.state = state
        row.due_at = max(row.expires_at, self.clock.seconds()) + self._grace
        if row.owner is not None:
            assert row.seqno is not None
            del row.owner.pending[row.seqno]
        self._push(row.id)

    def _discard_late(self, row: UploadRow) -> None:
        if row.byte_from is None and not self.order.points_at(row.sequence, row.object_name):
            self._discard(row.object_name, "late_payload")

    async def abort_upload(self, upload_id: str) -> tuple[Upload, Receipt]:
        row = self._known(upload_id)
        if row.state is State.COMMITTED:
            raise MtsError(
                "upload_final",
                "this upload is committed; a message cannot be taken back this way",
                {"upload_id": upload_id, "state": "committed", "sequence": row.sequence},
            )
        if not row.state.final:
            self._end(row, State.ABORTED, "aborted by the producer")
        return row.described(), self._receipt(row)

    async def expire_upload(self, upload_id: str) -> Receipt:
        row = self._known(upload_id)
        if row.state is State.OPEN and row.expires_at + self._grace <= self.clock.seconds():
            self._end(row, State.EXPIRED, "the payload did not arrive in time")
        return self._receipt(row)

    async def resume_upload(self, upload_id: str) -> None:
        self._must_be_up()
        row = self._uploads.get(upload_id)
        if row is not None and row.state is State.STORED:
            row.due_at = NEVER
            self._free_waiting(row.owner)

    async def uploads_due(self, limit: int) -> DueUploads:
        self._must_be_up()
        now = self.clock.seconds()
        due, removed, seen = [], 0, 0
        for row in sorted(self._uploads.values(), key=lambda row: (row.due_at, row.id)):
            if row.due_at > now or len(due) >= limit or seen >= _PER_TRANSACTION:
                break
            seen += 1
            served = row.byte_from is not None or self.order.points_at(row.sequence, row.object_name)
            if row.state is State.COMMITTED and served:
                del self._uploads[row.id]
                removed += 1
            else:
                due.append(row.described())
        return DueUploads(due, removed, seen >= _PER_TRANSACTION or len(due) >= limit)

    async def postpone_upload(self, upload_id: str, parts_seen: int) -> None:
        self._must_be_up()
        row = self._uploads.get(upload_id)
        if row is None or row.state is not State.OPEN:
            return
        now = self.clock.seconds()
        if parts_seen > row.parts_seen:
            row.parts_seen = parts_seen
            self._prolong(row, self._life)
        row.looks += 1
        pause = min(self._first_look * 2 ** min(row.looks, 20), _LONGEST_PAUSE)
        row.due_at = max(min(now + pause, row.expires_at + self._grace), now + 1)

    async def settle_upload(self, upload_id: str, *, object_is_there: bool) -> None:
        self._must_be_up()
        row = self._uploads.get(upload_id)
        if row is None or not row.state.final:
            return
        if object_is_there and not self.order.points_at(row.sequence, row.object_name):
            self._discard(row.object_name, "late_payload", row.multipart_id)
        del self._uploads[row.id]

    # -- packs and producers

    async def commit_pack(self, object_name: str, groups: Sequence[Group]) -> list[list[PackResult]]:
        self._must_be_up()
        age = self.clock.milliseconds() - (made_at_ms(object_name) or 0)
        if age > self._pack_grace * 500 or object_name in self.trash:
            raise unavailable("this took too long and was given up; send it again")
        self._objects[object_name] = 0
        results = [self._commit_group(object_name, group) for group in groups]
        if not self._objects[object_name]:
            self._discard(object_name, "unused_pack")
        return results

    def _commit_group(self, object_name: str, group: Group) -> list[PackResult]:
        """Frames become extents; one that is a duplicate, refused or must wait ends the extent before it."""
        marks = {mark["index"]: mark for mark in group.marks}
        answers: list[PackResult] = []
        run: list[int] = []
        position = run_from = group.byte_from

        def close_run() -> None:
            if run:
                own = [[entry[0] - run[0], *entry[1:]] for entry in group.own if run[0] <= entry[0] <= run[-1]]
                self.order.append(
                    group.subject,
                    object_name,
                    [group.sizes[index] for index in run],
                    headers=group.headers,
                    content_type=group.content_type,
                    byte_from=run_from,
                    own=own,
                )
                self._objects[object_name] += 1
                run.clear()

        for index, size in enumerate(group.sizes):
            sequence = self.order.watermark + len(run) + 1
            try:
                other = self._judge(object_name, group, index, position, marks.get(index), sequence)
            except MtsError as error:
                other = PackResult(None, error)
            position += FRAME_PREFIX + size
            if other is not None:
                close_run()
                run_from = position
                answers.append(other)
                continue
            self._ensure_subject(group.subject)
            offset = self.order.lanes.get(group.subject, Lane()).messages + len(run)
            run.append(index)
            answers.append(PackResult(Receipt(None, State.COMMITTED, sequence, 0, offset)))
        close_run()
        return answers

    def _judge(
        self, name: str, group: Group, index: int, position: int, mark: dict[str, Any] | None, sequence: int
    ) -> PackResult | None:
        """What to answer for a frame that does not join the extent; None when it does, under `sequence`."""
        if mark is None:
            return None
        if "key" in mark:
            known = self._key(group.subject, mark["key"], mark["digest"])
            if known is None:
                self._keys[group.subject, mark["key"]] = Key(mark["digest"], sequence, self.clock.seconds())
            return None if known is None else self._duplicate(known)
        producer_id, seqno = mark["producer_id"], mark["seqno"]
        owner = self._producers.get((group.subject, producer_id)) or Producer(producer_id)
        owner.check_epoch(mark["epoch"])
        if (stored := owner.stored_sequence(seqno)) is not None:
            return self._duplicate(stored)
        if seqno in owner.pending:
            raise MtsError(
                "seqno_in_use",
                "this seqno is announced by an upload that has not ended",
                {"upload_id": owner.pending[seqno]},
            )
        first = owner.first_pending()
        if first is not None and first[0] < seqno:
            return PackResult(self._store_waiting(name, group, index, position, owner, seqno))
        self._producers[group.subject, producer_id] = owner
        owner.record(seqno, sequence)
        return None

    def _duplicate(self, sequence: int) -> PackResult:
        return PackResult(self._placed(Receipt(None, State.COMMITTED, duplicate=True), sequence))

    def _store_waiting(
        self, name: str, group: Group, index: int, position: int, owner: Producer, seqno: int
    ) -> Receipt:
        now = self.clock.seconds()
        _, headers, content_type = next((entry for entry in group.own if entry[0] == index), (index, None, None))
        row = UploadRow(
            id=self._new_id(),
            subject=group.subject,
            object_name=name,
            size=group.sizes[index],
            content_type=content_type or group.content_type,
            headers=dict(group.headers if headers is None else headers),
            owner=owner,
            seqno=seqno,
            epoch=owner.epoch,
            created_at=now,
            expires_at=now,
            due_at=NEVER,
            state=State.STORED,
            byte_from=position,
        )
        self._add(row)
        self._objects[name] += 1
        return self._receipt(row)

    async def start_producer(self, subject: str, producer_id: str) -> tuple[int, int]:
        self._must_be_up()
        self._ensure_subject(subject)
        owner = self._ensure_producer(subject, producer_id)
        owner.epoch += 1
        for _, upload_id in sorted(owner.pending.items()):
            row = self._uploads[upload_id]
            if row.state is State.OPEN and owner.is_fenced(row.epoch):
                self._end(row, State.ABORTED, "producer_fenced")
        return owner.epoch, owner.last_seqno or 0

    # -- reading

    async def get_messages(
        self, subject: str, start: int, limit: int, *, partition: int | None = None, whole: bool = False
    ) -> ExtentPage:
        self._must_be_up()
        return self.order.page(subject, start, limit, partition, whole)

    async def get_message(self, sequence: int) -> Extent | None:
        self._must_be_up()
        return self.order.get(sequence)

    async def latest_sequence(self, subject: str) -> int:
        self._must_be_up()
        return self.order.latest(subject)

    async def wait_for_changes(self, cursor: tuple[str, int], timeout: float) -> Changes:
        self._must_be_up()
        boot, seen = cursor
        if boot != self._boot:
            return Changes((self._boot, len(self._changes)), True, [])
        if seen == len(self._changes):
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), timeout)
            except TimeoutError:
                pass
        return Changes((self._boot, len(self._changes)), False, self._changes[seen:])

    # -- trash, packs nobody committed, keys, the rest

    async def trash_due(self, limit: int) -> list[tuple[str, str | None]]:
        self._must_be_up()
        due = sorted((row.due_at, name) for name, row in self.trash.items() if row.due_at <= self.clock.seconds())
        return [(name, self.trash[name].multipart_id) for _, name in due[:limit]]

    async def trash_done(self, names: Sequence[str]) -> None:
        self._must_be_up()
        for name in names:
            self.trash.pop(name, None)
            self._objects.pop(name, None)

    async def trash_postpone(self, names: Sequence[str], seconds: int) -> None:
        self._must_be_up()
        for name in names:
            if name in self.trash:
                self.trash[name].due_at = self.clock.seconds() + seconds

    async def packs_cursor(self) -> str:
        self._must_be_up()
        return self._packs_cursor

    async def settle_packs(self, cursor: str, names: Sequence[str]) -> tuple[int, int]:
        self._must_be_up()
        settled = discarded = 0
        if cursor != self._packs_cursor:
            return 0, 0
        for name in names:
            made = made_at_ms(name)
            if made is not None and made > self.clock.milliseconds() - self._pack_grace * 1000:
                break
            if made is not None and name not in self._objects:
                self._discard(name, "uncommitted_pack")
                discarded += 1
            settled, self._packs_cursor = settled + 1, name
        return settled, discarded

    async def trim_idempotency(self) -> int:
        self._must_be_up()
        old = [name for name, key in self._keys.items() if key.at < self.clock.seconds() - _KEY_LIFE]
        for name in old[:_PER_TRANSACTION]:
            del self._keys[name]
        return len(old[:_PER_TRANSACTION])

    async def reject_event(self, object_name: str, reason: str) -> None:
        self._must_be_up()
        self._record_rejected(object_name, reason)

    async def take_lease(self, name: str, owner: str, seconds: float) -> bool:
        self._must_be_up()
        now = self.clock.seconds()
        holder, until = self._leases.get(name, (owner, 0))
        if holder != owner and until > now:
            return False
        self._leases[name] = (owner, now + ceil(seconds))
        return True

    async def now_ms(self) -> int:
        self._must_be_up()
        return self.clock.milliseconds()

    async def status(self) -> dict[str, Any]:
        self._must_be_up()
        return {
            "version": 1,
            "time": self.clock.seconds(),
            "watermark": self.order.watermark,
            "subjects": len(self._subjects),
            "rows": len(self.order.rows),
            "uploads": len(self._uploads),
            "trash": len(self.trash),
            "next_due_at": min((row.due_at for row in self._uploads.values()), default=None),
            "rejected_events": self._rejected[: -_REJECTED_SHOWN - 1 : -1],
            "arena_used": 0,
            "arena_size": 0,
            "quota_size": 0,
        }

    async def subjects(self, after: str, limit: int) -> list[dict[str, Any]]:
        self._must_be_up()
        found = []
        for name in sorted(self._subjects):
            if name > after and len(found) < limit:
                lane = self.order.lanes.get(name, Lane())
                counts = {"messages": lane.messages, "bytes": lane.bytes}
                found.append({"subject": name, "partitions": 1, "created_at": self._subjects[name][1], **counts})
        return found

    async def check(self) -> None:
        self._must_be_up()

    async def close(self) -> None:
        pass

    # -- shared

    def _must_be_up(self) -> None:
        if self.down:
            raise unavailable("the metadata store does not answer")

    def _ensure_subject(self, name: str) -> None:
        self._subjects.setdefault(name, (len(self._subjects) + 1, self.clock.seconds()))

    def _ensure_producer(self, subject: str, producer_id: str) -> Producer:
        return self._producers.setdefault((subject, producer_id), Producer(producer_id))

    def _known(self, upload_id: str) -> UploadRow:
        self._must_be_up()
        if upload_id not in self._uploads:
            raise not_found("there is no such upload; it may have ended long ago", upload_id=upload_id)
        return self._uploads[upload_id]

    def _open(self, upload_id: str) -> UploadRow:
        row = self._known(upload_id)
        if row.state is not State.OPEN:
            details = {"upload_id": upload_id, "state": str(row.state)}
            raise MtsError("upload_final", "this upload is no longer open", details)
        return row

    def _new_id(self) -> str:
        return new_id(self.clock.milliseconds())

    def _receipt(self, row: UploadRow, *, duplicate: bool = False) -> Receipt:
        receipt = Receipt(row.id, row.state, duplicate=duplicate, reason=row.reason)
        if row.sequence is not None:
            return self._placed(receipt, row.sequence)
        if row.state is State.STORED and row.owner is not None:
            first = row.owner.first_pending()
            return replace(receipt, waits_for=first[1] if first else None)
        return receipt

    def _placed(self, receipt: Receipt, sequence: int) -> Receipt:
        found = self.order.locate(sequence)
        if found is None:
            return replace(receipt, sequence=sequence)
        row, index = found
        return replace(receipt, sequence=sequence, partition=row.partition, offset=row.offset - row.count + 1 + index)

    def _discard(self, name: str, reason: str, multipart_id: str | None = None) -> None:
        self.trash.setdefault(name, Trash(self.clock.seconds(), reason, multipart_id))

    def _key(self, subject: str, key: str, digest: str) -> int | None:
        known = self._keys.get((subject, key))
        if known is None or known.at + _KEY_LIFE < self.clock.seconds():
            return None
        if known.digest != digest:
            raise MtsError("idempotency_conflict", "this Idempotency-Key was used for another message", {"key": key})
        return known.sequence

    def _record_rejected(self, object_name: str, reason: str) -> None:
        self._rejected.append({"at": self.clock.seconds(), "object_name": object_name, "reason": reason})

    def _push(self, upload_id: str) -> None:
        self._changes.append(upload_id)
        self._changed.set()
