"""Deletions on Tarantool: one stored function a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.config import Settings
from minitoolstream.domain.compaction import RowMove
from minitoolstream.domain.deletion import Deletion, Kept, Move
from minitoolstream.ports import DeletionWork, RewritePlan

_WALK = 600.0
"""Seconds a call may take that looks for the rows of an object, which may be all rows there are."""


class TarantoolDeletions:
    """Fulfils `ports.DeletionStore`."""

    def __init__(self, tarantool: Connection, settings: Settings) -> None:
        self._tarantool = tarantool
        self._pack_grace = int(settings["packs.grace"])

    async def delete_message(self, sequence: int, who: str, reason: str) -> Deletion:
        return _deletion(await self._tarantool.call("deletion_message", sequence, who, reason, timeout=_WALK))

    async def purge_subject(self, subject: str, who: str, reason: str) -> Deletion:
        return _deletion(await self._tarantool.call("deletion_subject", subject, who, reason))

    async def work(self, deletion_id: str, limit: int) -> DeletionWork:
        found = await self._tarantool.call("deletion_work", deletion_id, limit)
        names: dict[str, list[str]] = {"trash": [], "rewrite": []}
        for name, what in found["work"]:
            names[what].append(name)
        return DeletionWork(_deletion(found["deletion"]), names["trash"], names["rewrite"])

    async def open_deletions(self, limit: int) -> list[Deletion]:
        return [_deletion(fields) for fields in await self._tarantool.call("deletions_open", limit)]

    async def trim(self) -> int:
        return int(await self._tarantool.call("deletions_trim"))

    async def plan(self, object_name: str, target: str) -> RewritePlan | None:
        found = await self._tarantool.call("erasure_plan", object_name, target, timeout=_WALK)
        if not found:
            return None
        return RewritePlan([Kept(*fields) for fields in found["kept"]], list(found["missing"]))

    async def switch(self, object_name: str, target: str, moves: Sequence[Move], missing: Sequence[int]) -> bool:
        moved = [[m.kept.kind, m.kept.key, m.kept.first, m.kept.length, m.first] for m in moves]
        return bool(
            await self._tarantool.call("erasure_switch", object_name, target, moved, list(missing), self._pack_grace)
        )

    async def move_rows(self, target: str, moves: Sequence[RowMove]) -> bool:
        moved = [[move.extent.sequence, move.extent.object_name, *move.span, move.first] for move in moves]
        return bool(await self._tarantool.call("rows_move", target, moved, self._pack_grace))


def _deletion(fields: dict[str, Any]) -> Deletion:
    return msgspec.convert(fields, Deletion)
