"""Deletions in memory, for tests of services. The contract tests hold them against real Tarantool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.rows import MOVED, NEVER, UploadRow, made_at_ms
from minitoolstream.domain.compaction import RowMove
from minitoolstream.domain.deletion import Deletion, Kept, Move
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.domain.upload import State
from minitoolstream.ports import DeletionWork, RewritePlan

_KEPT = 24 * 3600
_PER_TRANSACTION = 500


@dataclass(slots=True)
class MemoryDeletions:
    """Fulfils `ports.DeletionStore`."""

    metadata: MemoryMetadata
    known: dict[str, Deletion] = field(default_factory=dict)
    done_at: dict[str, int] = field(default_factory=dict)
    erasures: dict[tuple[str, str], str | None] = field(default_factory=dict)

    async def delete_message(self, sequence: int, who: str, reason: str) -> Deletion:
        order, uploads = self.metadata.order, self.metadata.uploads
        found = order.locate(sequence)
        if found is None:
            for known in reversed(self.known.values()):
                if known.kind == "message" and sequence in known.sequences:
                    return known
            raise not_found("there is no such message (any more)", sequence=sequence)
        row, index = found
        rows = [one for one in order.rows if one.object_name == row.object_name]
        if len(rows) + len(self._stored(row.object_name)) != uploads.objects.get(row.object_name, 1):
            raise MtsError("inconsistent", "more or fewer rows point at the payload of this message than are counted")
        at = _frames(row)[index]
        gone, refs = [], uploads.objects.get(row.object_name, 1)
        for one in rows:
            if at in _frames(one):
                removed, left = order.cut_out(one, _frames(one).index(at))
                gone.append(removed)
                refs += left - 1
        deletion = Deletion(
            uploads.new_id(),
            "message",
            row.subject,
            uploads.now(),
            who,
            reason,
            len(gone),
            sum(one.size for one in gone),
            sequence,
            sequences=tuple(one.sequence for one in gone),
            object_name=row.object_name,
        )
        self._leave(row, refs, deletion.id)
        self.known[deletion.id] = deletion
        return deletion

    async def purge_subject(self, subject: str, who: str, reason: str) -> Deletion:
        uploads = self.metadata.uploads
        if subject not in uploads.subjects:
            raise MtsError("unknown_subject", "there is no such subject", {"subject": subject})
        for known in self.known.values():
            if known.kind == "subject" and known.subject == subject and not known.done:
                return known
        upto = self.metadata.order.watermark
        deletion = Deletion(
            uploads.new_id(), "subject", subject, uploads.now(), who, reason, 0, 0, upto=upto, removed=False
        )
        self.known[deletion.id] = deletion
        return deletion

    async def work(self, deletion_id: str, limit: int) -> DeletionWork:
        deletion = self.known[deletion_id]
        if not deletion.removed:
            deletion = self._remove_some(deletion)
        trash: list[str] = []
        rewrite: list[str] = []
        for name, owner in sorted(self.erasures):
            if owner != deletion_id or len(trash) + len(rewrite) >= limit:
                continue
            if name in self.metadata.trash:
                trash.append(name)
            elif self.metadata.uploads.objects.get(name):
                rewrite.append(name)
            else:
                del self.erasures[name, owner]
        if deletion.removed and not deletion.done and not trash and not rewrite:
            deletion = replace(deletion, done=True)
            self.done_at[deletion_id] = self.metadata.uploads.now()
        self.known[deletion_id] = deletion
        return DeletionWork(deletion, trash, rewrite)

    def _remove_some(self, deletion: Deletion) -> Deletion:
        order, uploads = self.metadata.order, self.metadata.uploads
        assert deletion.upto is not None
        rows = [row for row in order.rows if row.subject == deletion.subject and row.sequence <= deletion.upto]
        some = rows[:_PER_TRANSACTION]
        for row in some:
            order.drop(row)
            self._leave(row, uploads.objects.get(row.object_name, 1) - 1, deletion.id)
        return replace(
            deletion,
            messages=deletion.messages + sum(row.count for row in some),
            bytes=deletion.bytes + sum(row.size for row in some),
            removed=len(rows) < _PER_TRANSACTION,
        )

    def _leave(self, row: Extent, refs: int, deletion_id: str) -> None:
        uploads = self.metadata.uploads
        if refs == 0:
            uploads.discard(row.object_name, "deleted")
        if refs > 0 or row.object_name in uploads.objects:
            uploads.objects[row.object_name] = refs
        if refs == 0 or row.byte_from is not None:
            self.erasures[row.object_name, deletion_id] = None

    async def open_deletions(self, limit: int) -> list[Deletion]:
        return [one for one in self.known.values() if not one.done][:limit]

    async def trim(self) -> int:
        old = [name for name, at in self.done_at.items() if at + _KEPT <= self.metadata.uploads.now()]
        for name in old:
            del self.known[name], self.done_at[name]
        return len(old)

    async def plan(self, object_name: str, target: str) -> RewritePlan | None:
        order, uploads = self.metadata.order, self.metadata.uploads
        mine = [key for key in self.erasures if key[0] == object_name]
        if not mine or not uploads.objects.get(object_name):
            return None
        for key in mine:
            before = self.erasures[key]
            if before and before not in uploads.objects:
                uploads.discard(before, "abandoned_rewrite", multipart=True)
            self.erasures[key] = target
        rows = [row for row in order.rows if row.object_name == object_name]
        kept = [_kept_row(row) for row in rows if row.sequence not in order.missing]
        kept += [_kept_upload(row) for row in self._stored(object_name)]
        return RewritePlan(kept, [row.sequence for row in rows if row.sequence in order.missing])

    async def switch(self, object_name: str, target: str, moves: Sequence[Move], missing: Sequence[int]) -> bool:
        order, uploads = self.metadata.order, self.metadata.uploads
        mine = [key for key in self.erasures if key[0] == object_name]
        now = [_kept_row(row) for row in order.rows if row.object_name == object_name and row.sequence not in missing]
        now += [_kept_upload(row) for row in self._stored(object_name)]
        age = self.metadata.clock.milliseconds() - (made_at_ms(target) or 0)
        same = {(one.key, one.first, one.length) for one in now} == {
            (move.kept.key, move.kept.first, move.kept.length) for move in moves
        }
        too_old = age > self.metadata.pack_grace * 500
        if not mine or any(self.erasures[key] != target for key in mine) or not same or too_old:
            if target not in uploads.objects:
                uploads.discard(target, "abandoned_rewrite", multipart=True)
            return False
        for move in moves:
            if isinstance(move.kept.key, int):
                order.move(move.kept.key, target, move.first)
            else:
                waiting = uploads.rows[move.kept.key]
                waiting.object_name, waiting.byte_from = target, move.first
        if moves:
            uploads.objects[target] = len(moves)
        uploads.objects[object_name] = 0
        uploads.discard(object_name, MOVED)
        for key in mine:
            self.erasures[key] = None
        return True

    async def move_rows(self, target: str, moves: Sequence[RowMove]) -> bool:
        order, uploads = self.metadata.order, self.metadata.uploads
        if target in uploads.objects:
            return True
        now = {row.sequence: row for row in order.rows if row.sequence not in order.missing}
        too_old = self.metadata.clock.milliseconds() - (made_at_ms(target) or 0) > self.metadata.pack_grace * 500
        if too_old or target in uploads.trash or any(now.get(one.extent.sequence) != one.extent for one in moves):
            uploads.discard(target, "abandoned_compaction")
            return False
        for one in moves:
            order.move(one.extent.sequence, target, one.first)
            uploads.release(one.extent.object_name, MOVED)
        uploads.objects[target] = len(moves)
        return True

    def _stored(self, object_name: str) -> list[UploadRow]:
        return [
            row
            for row in self.metadata.uploads.rows.values()
            if row.state is State.STORED and row.byte_from is not None and row.object_name == object_name
        ]


def _frames(row: Extent) -> list[int | None]:
    """Where the frames of an extent begin."""
    if row.byte_from is None:
        return [None]
    starts: list[int | None] = []
    at = row.byte_from
    for size in row.sizes or [row.size]:
        starts.append(at)
        at += size + FRAME_PREFIX
    return starts


def _kept_row(row: Extent) -> Kept:
    first, last = row.byte_range or (0, row.size - 1)
    facts: dict[str, Any] = {
        "subject": row.subject,
        "headers": row.headers,
        "content_type": row.content_type,
        "codec": row.codec,
        "sizes": row.sizes or [row.size],
        "own": row.own,
    }
    return Kept("row", row.sequence, first, last - first + 1, facts)


def _kept_upload(row: UploadRow) -> Kept:
    sizes = row.sizes or [row.size]
    facts: dict[str, Any] = {
        "subject": row.subject,
        "headers": row.headers,
        "content_type": row.content_type,
        "codec": row.codec,
        "sizes": sizes,
    }
    assert row.byte_from is not None
    assert row.due_at in {0, NEVER}
    return Kept("upload", row.id, row.byte_from, sum(sizes) + FRAME_PREFIX * len(sizes), facts)
