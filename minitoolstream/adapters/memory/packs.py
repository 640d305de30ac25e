"""Committing packs in memory: frames become extents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minitoolstream.adapters.memory.producers import Producer
from minitoolstream.adapters.memory.rows import NEVER, Key, UploadRow
from minitoolstream.adapters.memory.uploads import Uploads
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import FRAME_PREFIX, Group
from minitoolstream.domain.upload import Receipt, State
from minitoolstream.ports import PackResult

KEY_LIFE = 24 * 3600
Keys = dict[tuple[str, str], Key]


@dataclass(slots=True)
class GroupCommit:
    """The walk over one group's frames. One that is a duplicate, is refused or must wait ends the extent before it."""

    uploads: Uploads
    keys: Keys
    object_name: str
    group: Group
    run: list[int] = field(default_factory=list)
    own: dict[int, list[Any]] = field(default_factory=dict)
    run_from: int = 0
    position: int = 0

    def results(self) -> list[PackResult]:
        marks = {mark["index"]: mark for mark in self.group.marks}
        self.own = {entry[0]: entry for entry in self.group.own}
        self.run_from = self.position = self.group.byte_from
        answers = []
        for index, size in enumerate(self.group.sizes):
            try:
                answer = self._judge(index, marks.get(index))
            except MtsError as error:
                answer = PackResult(None, error)
            self.position += FRAME_PREFIX + size
            if answer is None:
                answer = self._join(index)
            else:
                self._close_run()
                self.run_from = self.position
            answers.append(answer)
        self._close_run()
        return answers

    @property
    def _next_sequence(self) -> int:
        return self.uploads.order.watermark + len(self.run) + 1

    def _join(self, index: int) -> PackResult:
        offset = self.uploads.order.lane(self.group.subject).next_offset + len(self.run)
        receipt = Receipt(State.COMMITTED, None, self._next_sequence, 0, offset)
        self.run.append(index)
        return PackResult(receipt, None, self.object_name)

    def _close_run(self) -> None:
        if not self.run:
            return
        first, last, group = self.run[0], self.run[-1], self.group
        self.uploads.ensure_subject(group.subject)
        self.uploads.order.append(
            group.subject,
            self.object_name,
            group.sizes[first : last + 1],
            headers=group.headers,
            content_type=group.content_type,
            byte_from=self.run_from,
            own=[[index - first, *self.own[index][1:]] for index in self.run if index in self.own],
            codec=group.codec,
        )
        self.uploads.objects[self.object_name] += 1
        self.run = []

    def _judge(self, index: int, mark: dict[str, Any] | None) -> PackResult | None:
        """None for a frame that joins the extent, under the next sequence."""
        if mark is not None and "producer_id" in mark:
            return self._judge_producer(index, mark)
        return self._judge_key(mark) if mark is not None and "key" in mark else None

    def _judge_key(self, mark: dict[str, Any]) -> PackResult | None:
        name, now = (self.group.subject, mark["key"]), self.uploads.now()
        known = self.keys.get(name)
        if known is None or known.at + KEY_LIFE < now:
            self.keys[name] = Key(mark["digest"], self._next_sequence, now)
            return None
        if known.digest != mark["digest"]:
            message = "this Idempotency-Key was used for another message"
            raise MtsError("idempotency_conflict", message, {"key": mark["key"]})
        self._close_run()
        return PackResult(self.uploads.duplicate(known.sequence))

    def _judge_producer(self, index: int, mark: dict[str, Any]) -> PackResult | None:
        subject, seqno = self.group.subject, mark["seqno"]
        # Only a producer with something stored or waiting is remembered.
        owner = self.uploads.producers.get((subject, mark["producer_id"])) or Producer(mark["producer_id"])
        owner.check_epoch(mark["epoch"])
        self.uploads.producers[subject, mark["producer_id"]] = owner
        if owner.headers and mark["epoch"] == owner.epoch:
            _, headers, content_type = self.own.get(index, (index, None, None))
            merged = owner.headers_for(mark["epoch"], self.group.headers if headers is None else headers)
            self.own[index] = [index, merged, content_type]
        if (stored := owner.stored_sequence(seqno)) is not None:
            self._close_run()
            return PackResult(self.uploads.duplicate(stored))
        if seqno in owner.pending:
            known = self.uploads.rows[owner.pending[seqno]]
            same_size = known.size == self.group.sizes[index]
            if known.state is State.STORED and known.byte_from is not None and same_size:
                self._close_run()
                return PackResult(self.uploads.receipt(known))
            message = "this seqno is announced by an upload that has not ended"
            raise MtsError("seqno_in_use", message, {"upload_id": owner.pending[seqno]})
        first = owner.first_pending()
        if first is not None and first[0] < seqno:
            row = self._waiting(index)
            row.owner, row.seqno, row.epoch = owner, seqno, owner.epoch
            self.uploads.add(row)
            return PackResult(self.uploads.receipt(row))
        owner.record(seqno, self._next_sequence)
        return None

    def _waiting(self, index: int) -> UploadRow:
        """A frame behind an open seqno: an upload in `stored` that points into the pack."""
        group, now = self.group, self.uploads.now()
        _, headers, content_type = self.own.get(index, (index, None, None))
        self.uploads.objects[self.object_name] += 1
        return UploadRow(
            id=self.uploads.new_id(),
            subject=group.subject,
            object_name=self.object_name,
            size=group.sizes[index],
            content_type=content_type or group.content_type,
            headers=dict(group.headers if headers is None else headers),
            created_at=now,
            expires_at=now,
            due_at=NEVER,
            state=State.STORED,
            byte_from=self.position,
            codec=group.codec,
        )
