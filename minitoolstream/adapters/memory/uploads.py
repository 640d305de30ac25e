"""Uploads in memory: how they begin, how they end, and whom that sets free."""

from __future__ import annotations

import uuid
from asyncio import Event
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from minitoolstream.adapters.memory.order import Order
from minitoolstream.adapters.memory.producers import Producer
from minitoolstream.adapters.memory.rows import NEVER, Times, Trash, UploadRow
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import PAYLOAD_PREFIX
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import Receipt, State, UploadSpec
from minitoolstream.ports import NewUpload

PER_TRANSACTION = 500


@dataclass(slots=True)
class ChangeLog:
    """Ids of uploads that changed, and subjects with a slash before them, for those who wait."""

    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    keys: list[str] = field(default_factory=list)
    grown: Event = field(default_factory=Event)

    def push(self, key: str) -> None:
        self.keys.append(key)
        self.grown.set()


@dataclass(slots=True)
class Uploads:
    order: Order
    times: Times
    subjects: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: dict[str, UploadRow] = field(default_factory=dict)
    producers: dict[tuple[str, str], Producer] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    trash: dict[str, Trash] = field(default_factory=dict)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    changes: ChangeLog = field(default_factory=ChangeLog)
    trash_grace: int = 3600
    newest_epoch: int = 0

    def now(self) -> int:
        return self.order.clock.seconds()

    def new_id(self) -> str:
        return new_id(self.order.clock.milliseconds())

    def ensure_subject(self, name: str) -> None:
        self.subjects.setdefault(name, (len(self.subjects) + 1, self.now()))

    def ensure_producer(self, subject: str, producer_id: str) -> Producer:
        return self.producers.setdefault((subject, producer_id), Producer(producer_id))

    def next_epoch(self) -> int:
        """Of any producer's new session."""
        self.newest_epoch = max(self.order.clock.milliseconds(), self.newest_epoch + 1)
        return self.newest_epoch

    # -- beginning

    def create(self, subject: str, spec: UploadSpec) -> NewUpload:
        owner = None
        if spec.producer_id is not None:
            assert spec.seqno is not None
            owner = self.ensure_producer(subject, spec.producer_id)
            owner.check_epoch(spec.epoch)
            if (sequence := owner.stored_sequence(spec.seqno)) is not None:
                return NewUpload(None, self.duplicate(sequence))
            if spec.seqno in owner.pending:
                return self._reopen(self.rows[owner.pending[spec.seqno]], spec)
        upload_id = self.new_id()
        row = UploadRow(
            id=upload_id,
            subject=subject,
            object_name=f"{PAYLOAD_PREFIX}{subject}/{self.subjects[subject][0]}/{upload_id}",
            size=spec.size,
            content_type=spec.content_type,
            sha256=spec.sha256,
            headers=owner.headers_for(spec.epoch, spec.headers) if owner else dict(spec.headers),
            owner=owner,
            seqno=spec.seqno,
            epoch=owner.epoch if owner else None,
            sizes=list(spec.sizes) if spec.sizes else None,
            created_at=self.now(),
            expires_at=self.now() + (self.times.producer_life if owner else self.times.life),
            due_at=self.now() + self.times.first_look,
            part_size=spec.part_size,
            group=spec.group,
            codec=spec.codec,
        )
        self.add(row)
        return NewUpload(row.described(), None)

    def _reopen(self, row: UploadRow, spec: UploadSpec) -> NewUpload:
        assert row.owner is not None
        pairs = {
            "size": (row.size, spec.size),
            "content_type": (row.content_type, spec.content_type),
            "sha256": (row.sha256, spec.sha256),
            "headers": (row.headers, row.owner.headers_for(spec.epoch, spec.headers)),
            "sizes": (row.sizes or [], list(spec.sizes or [])),
            "group": (row.group, spec.group),
            "codec": (row.codec, spec.codec),
        }
        for name, (first, now) in pairs.items():
            if first != now:
                raise MtsError(
                    "upload_conflict",
                    f"this seqno is announced already with other `{name}`",
                    {"upload_id": row.id, "seqno": spec.seqno, "field": name},
                )
        if row.state is State.STORED:
            return NewUpload(None, self.receipt(row))
        self.prolong(row)
        return NewUpload(row.described(), None)

    def add(self, row: UploadRow) -> None:
        self.rows[row.id] = row
        if row.owner is not None:
            assert row.seqno is not None
            row.owner.pending[row.seqno] = row.id

    def forget_since(
        self,
        subjects: dict[str, tuple[int, int]],
        producers: dict[tuple[str, str], Producer],
        expiries: dict[str, int],
    ) -> None:
        """Take back what `create` did since these were noted."""
        self.subjects, self.producers = subjects, producers
        for row in list(self.rows.values()):
            if row.id in expiries:
                row.expires_at = expiries[row.id]
                continue
            del self.rows[row.id]
            if row.owner is not None:
                assert row.seqno is not None
                del row.owner.pending[row.seqno]

    def prolong(self, row: UploadRow) -> None:
        life = self.times.producer_life if row.owner else self.times.life
        row.expires_at = max(row.expires_at, min(self.now() + life, row.created_at + self.times.max_life))

    # -- ending

    def commit(self, row: UploadRow, size: int) -> None:
        """An open upload's payload is there."""
        reason = None
        if row.object_name in self.trash:
            reason = "already_deleted"
        elif row.size != size:
            reason = f"size_mismatch: announced {row.size}, stored {size}"
        if reason:
            self.reject(row.object_name, reason)
            self.end(row, State.REJECTED, reason)
        elif row.owner is not None and row.owner.first_pending() != (row.seqno, row.id):
            row.state, row.due_at = State.STORED, NEVER
            self.changes.push(row.id)
        else:
            self._make_visible(row)
            self.free_waiting(row.owner)

    def _make_visible(self, row: UploadRow) -> None:
        byte_from = row.byte_from
        if row.sizes is not None:
            byte_from = row.size - sum(size + FRAME_PREFIX for size in row.sizes)
        sizes = row.sizes or [row.size]
        first = self.order.append(
            row.subject,
            row.object_name,
            sizes,
            headers=row.headers,
            content_type=row.content_type,
            byte_from=byte_from,
            sha256=row.sha256,
            codec=row.codec,
            keep_sizes=row.sizes is not None,
        )
        row.sequence = first + len(sizes) - 1
        if row.owner is not None:
            assert row.seqno is not None
            row.owner.record(row.seqno, row.sequence)
        self._finish(row, State.COMMITTED)

    def free_waiting(self, owner: Producer | None) -> bool:
        """Whatever waited behind an ended seqno becomes visible, until an open one is met; True when it is more than
        one transaction may free."""
        freed = 0
        while owner and (first := owner.first_pending()) and self.rows[first[1]].state is State.STORED:
            if freed == PER_TRANSACTION:
                self.rows[first[1]].due_at = 0
                return True
            self._make_visible(self.rows[first[1]])
            freed += 1
        return False

    def end(self, row: UploadRow, state: State, reason: str) -> None:
        """Without a message."""
        if row.byte_from is None:
            self.discard(row.object_name, reason, multipart=row.part_size is not None)
        else:
            self.release(row.object_name, reason)
        row.reason = reason
        self._finish(row, state)
        self.free_waiting(row.owner)

    def _finish(self, row: UploadRow, state: State) -> None:
        row.state = state
        row.due_at = max(row.expires_at, self.now()) + self.times.put_grace
        if row.owner is not None:
            assert row.seqno is not None
            del row.owner.pending[row.seqno]
        self.changes.push(row.id)

    def discard_late(self, row: UploadRow) -> None:
        held = self.order.points_at(row.sequence, row.object_name) or self.objects.get(row.object_name)
        if row.byte_from is None and not held:
            self.discard(row.object_name, "late_payload", multipart=row.part_size is not None)

    def release(self, name: str, reason: str) -> None:
        """One row less points at an object that was visible, or may have been."""
        left = self.objects.get(name, 1) - 1
        if name in self.objects:
            self.objects[name] = left
        if not left:
            self.discard(name, reason, grace=self.trash_grace)

    def discard(self, name: str, reason: str, *, multipart: bool = False, grace: int = 0) -> None:
        before = self.trash.get(name) or Trash(0, reason, multipart)
        not_before = max(before.not_before, self.now() + grace if grace else 0)
        self.trash[name] = Trash(max(self.now(), not_before), reason, multipart or before.multipart, not_before)

    def reject(self, object_name: str, reason: str) -> None:
        self.rejected.append({"at": self.now(), "object_name": object_name, "reason": reason})

    # -- receipts

    def receipt(self, row: UploadRow, *, duplicate: bool = False) -> Receipt:
        receipt = Receipt(row.state, row.id, duplicate=duplicate, reason=row.reason)
        if row.sequence is not None:
            return self._placed(receipt, row.sequence)
        if row.state is State.STORED and row.owner is not None:
            first = row.owner.first_pending()
            return replace(receipt, waits_for=first[1] if first else None)
        return receipt

    def duplicate(self, sequence: int) -> Receipt:
        return self._placed(Receipt(State.COMMITTED, None, duplicate=True), sequence)

    def _placed(self, receipt: Receipt, sequence: int) -> Receipt:
        found = self.order.locate(sequence)
        if found is None:  # it has expired
            return replace(receipt, sequence=sequence)
        row, index = found
        return replace(receipt, sequence=sequence, partition=row.partition, offset=row.offset - row.count + 1 + index)
