"""What a check asks, in memory, for tests of services. The contract tests hold it against real Tarantool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.rows import UploadRow
from minitoolstream.domain.keys import PACK_PREFIX
from minitoolstream.domain.message import Extent
from minitoolstream.domain.subject import upload_id_of
from minitoolstream.domain.upload import State
from minitoolstream.ports import Lane, LanePage, Pointing, RowFacts, Summary, UploadFacts


@dataclass(slots=True)
class MemoryAudit:
    """Fulfils `ports.AuditStore`."""

    metadata: MemoryMetadata
    report: tuple[str, int] | None = None

    async def rows(self, after: int, limit: int) -> list[RowFacts]:
        found = [row for row in self.metadata.order.rows if row.sequence > after][:limit]
        return [
            RowFacts(
                row.sequence,
                row.count,
                row.object_name,
                row.byte_from,
                row.size if row.byte_range is None else row.byte_range[1] - row.byte_range[0] + 1,
                bool(row.unverified),
                row.sequence in self.metadata.order.missing,
            )
            for row in found
        ]

    async def rows_at(self, keys: Sequence[int]) -> dict[int, Extent]:
        order = self.metadata.order
        return {
            row.sequence: changed(row, missing=row.sequence in order.missing)
            for row in order.rows
            if row.sequence in keys
        }

    async def objects(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [entry for entry in sorted(self.metadata.uploads.objects.items()) if entry[0] > after][:limit]

    async def uploads(self, after: str, limit: int) -> list[UploadFacts]:
        rows = sorted(self.metadata.uploads.rows.values(), key=lambda row: row.id)
        return [
            UploadFacts(row.id, str(row.state), row.object_name, row.byte_from is not None, row.size, row.created_at)
            for row in rows
            if row.id > after
        ][:limit]

    async def trash(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(name, row.due_at) for name, row in sorted(self.metadata.trash.items()) if name > after][:limit]

    async def lanes(self, subject: str, partition: int) -> LanePage:
        names = sorted({*self.metadata.order.lanes, *(row.subject for row in self.metadata.order.rows)})
        return LanePage([self._lane(name) for name in names if (name, 0) > (subject, partition)], more=False)

    def _lane(self, subject: str) -> Lane:
        rows = [row for row in self.metadata.order.rows if row.subject == subject]
        lane = self.metadata.order.lanes.get(subject)
        counters = None
        if lane is not None:
            counters = {"messages": lane.messages, "bytes": lane.bytes, "next_offset": lane.next_offset}
            counters["unverified"] = 0
        return Lane(
            subject,
            0,
            len(rows),
            sum(row.count for row in rows),
            sum(row.size for row in rows),
            0,
            counters,
            rows[-1].offset if rows else None,
        )

    async def names(self, names: Sequence[str]) -> dict[str, Pointing]:
        pointing = Counter(row.object_name for row in self.metadata.order.rows)
        uploads = self.metadata.uploads
        waiting = Counter(
            row.object_name for row in uploads.rows.values() if row.state is State.STORED and row.byte_from is not None
        )
        return {
            name: Pointing(
                pointing[name], waiting[name], uploads.objects.get(name), name in uploads.trash, self._upload_of(name)
            )
            for name in names
        }

    def _upload_of(self, name: str) -> str | None:
        row = self.metadata.uploads.rows.get(upload_id_of(name) or "")
        return None if row is None or row.object_name != name else str(row.state)

    async def summary(self) -> Summary:
        uploads = self.metadata.uploads
        waiting = [row for row in uploads.rows.values() if not row.state.final]
        oldest = min(waiting, key=lambda row: row.id, default=None)
        return Summary(
            watermark=self.metadata.order.watermark,
            time=uploads.now(),
            uploads=len(uploads.rows),
            trash=len(uploads.trash),
            missing=len(self.metadata.order.missing),
            deletions=0,
            oldest_ticket=_ticket(oldest),
            oldest_trash_due_at=min((row.due_at for row in uploads.trash.values()), default=None),
        )

    async def mend_lane(self, subject: str, partition: int) -> Lane:
        assert partition == 0
        found, lane = self._lane(subject), self.metadata.order.lane(subject)
        lane.messages, lane.bytes = found.messages, found.bytes
        lane.next_offset = max(lane.next_offset, (found.last_offset or -1) + 1)
        return replace(self._lane(subject), mended=True)

    async def mend_refs(self, names: Sequence[str]) -> int:
        wrong = {name: one for name, one in (await self.names(names)).items() if not one.is_right}
        for name, one in wrong.items():
            self.metadata.uploads.objects[name] = one.rows + one.stored
            if not one.rows + one.stored:
                self.metadata.uploads.discard(name, "unused")
            elif one.trash:
                del self.metadata.trash[name]
        return len(wrong)

    async def keep(self, names: Sequence[str]) -> list[str]:
        doomed = [name for name, one in (await self.names(names)).items() if one.is_doomed]
        for name in doomed:
            del self.metadata.trash[name]
        return doomed

    async def discard_orphans(self, names: Sequence[str]) -> list[str]:
        young = self.metadata.first_young()
        alone = [name for name, one in (await self.names(names)).items() if one.nothing]
        old = [name for name in alone if not name.startswith(PACK_PREFIX) or name < young]
        for name in old:
            self.metadata.uploads.discard(name, "orphan")
        return old

    async def quarantine(self, rows: Sequence[tuple[int, str, str]]) -> int:
        order, messages = self.metadata.order, 0
        for sequence, name, _ in rows:
            found = order.locate(sequence)
            if found and found[0].object_name == name:
                order.missing.add(found[0].sequence)
                messages += found[0].count
        return messages

    async def missing_packs(self, after: str, listed: Sequence[str]) -> list[str]:
        last = listed[-1] if listed else ""
        objects = self.metadata.uploads.objects.items()
        counted = [name for name, refs in sorted(objects) if refs and name.startswith(PACK_PREFIX)]
        return [n for n in counted if after < n <= last and n not in listed and n not in self.metadata.trash]

    async def quarantine_object(self, name: str, reason: str) -> int:
        rows = [(row.sequence, name, reason) for row in self.metadata.order.rows if row.object_name == name]
        return await self.quarantine(rows)

    async def release(self, keys: Sequence[int]) -> int:
        order, messages = self.metadata.order, 0
        for row in order.rows:
            if row.sequence in keys and row.sequence in order.missing:
                order.missing.discard(row.sequence)
                messages += row.count
        return messages

    async def put_report(self, object_name: str, size: int) -> None:
        if self.report and self.report[0] != object_name:
            self.metadata.uploads.discard(self.report[0], "old_report")
        self.report = (object_name, size)

    async def get_report(self) -> tuple[str, int] | None:
        return self.report


def _ticket(row: UploadRow | None) -> dict[str, Any] | None:
    return None if row is None else {"id": row.id, "state": str(row.state), "created_at": row.created_at}
