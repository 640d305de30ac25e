"""Ceiling, journal, snapshots and restores on Tarantool: one stored function a method."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.config import Settings
from minitoolstream.ports import JournalLag, JournalStep, Position, Settled

_LONG = 3600.0
"""Seconds that a snapshot, or going over all rows, may take."""
_STEP = 60.0


class TarantoolJournal:
    """Fulfils `ports.JournalStore`."""

    def __init__(self, connection: Connection) -> None:
        self._tarantool = connection

    async def position(self) -> Position:
        return Position(**await self._tarantool.call("position_get"))

    async def need_recovery(self, reason: str) -> str:
        return str(await self._tarantool.call("recovery_need", reason))

    async def plan_ceiling(self, target: int) -> None:
        await self._tarantool.call("ceiling_plan", target)

    async def raise_ceiling(self, target: int) -> int:
        return int(await self._tarantool.call("ceiling_raise", target))

    async def read_journal(
        self, position: Mapping[str, Any] | None, limit: int, *, checkpoint: bool = False
    ) -> JournalStep:
        asked = None if position is None else dict(position)
        step = await self._tarantool.call("journal_read", asked, limit, checkpoint, timeout=_STEP)
        return JournalStep(
            [list(row) for row in step["rows"]],
            [[item[0], *(list(value) if value is not None else None for value in item[1:3]), *item[3:]]
             for item in step["side"]],
            list(step["removed"]),
            step["position"],
            step["complete"],
            list(step["holes"]),
        )  # fmt: skip

    async def plan_segment(self, seen: int) -> int | None:
        number = await self._tarantool.call("journal_plan", seen)
        return None if number is None else int(number)

    async def ack_segment(self, number: int, position: Mapping[str, Any], *, complete: bool) -> bool:
        return bool(await self._tarantool.call("journal_ack", number, dict(position), complete))

    async def journal_lag(self) -> JournalLag:
        return JournalLag(**await self._tarantool.call("journal_lag"))

    async def living(self, ranges: Sequence[tuple[int, int]]) -> list[bool]:
        return list(await self._tarantool.call("journal_living", [list(pair) for pair in ranges]))

    async def objects_after(self, sequence: int, limit: int) -> list[tuple[int, str, bool]]:
        found = await self._tarantool.call("objects_get", sequence, limit, timeout=_STEP)
        return [(item[0], item[1], item[2]) for item in found]


class TarantoolRestore:
    """Fulfils `ports.RestoreStore`."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._tarantool = connection
        self._grace = int(settings["uploads.put_grace"])

    async def begin_backup(self) -> tuple[str, int]:
        begun = await self._tarantool.call("backup_begin", timeout=_LONG)
        return begun["name"], begun["size"]

    async def read_backup(self, name: str, offset: int, size: int) -> bytes:
        return base64.b64decode(await self._tarantool.call("backup_read", name, offset, size, timeout=_STEP))

    async def end_backup(self) -> None:
        await self._tarantool.call("backup_end")

    async def begin_restore(self, *, anew: bool) -> None:
        await self._tarantool.call("restore_begin", anew, timeout=_STEP)

    async def apply(self, rows: Sequence[Any], side: Sequence[Any], removed: Sequence[int]) -> None:
        await self._tarantool.call("restore_apply", list(rows), list(side), list(removed), timeout=_STEP)

    async def settle(self, told: int) -> Settled:
        settled = await self._tarantool.call("restore_settle", told, timeout=_LONG)
        return Settled(settled["held"], settled["messages"])

    async def drop(self, sequences: Sequence[int]) -> None:
        await self._tarantool.call("restore_drop", list(sequences))

    async def delete_again(self, record: Mapping[str, Any]) -> bool:
        return bool(await self._tarantool.call("deletion_again", dict(record), timeout=_LONG))

    async def discard_deleted(self, names: Sequence[str]) -> int:
        return int(await self._tarantool.call("audit_discard_deleted", list(names), timeout=_LONG))

    async def finish_restore(self, base: int, top: int, number: int, journal_at: int) -> int:
        return int((await self._tarantool.call("restore_finish", base, top, number, journal_at))["last"])

    async def known_objects(self, names: Sequence[str]) -> list[bool]:
        return list(await self._tarantool.call("orphans_known", list(names)))

    async def adopt_pack(
        self, name: str, groups: Sequence[Mapping[str, Any]], purge: Mapping[str, Any] | None = None
    ) -> int:
        given = [dict(group) for group in groups]
        return int(await self._tarantool.call("orphan_adopt_pack", name, given, purge and dict(purge)))

    async def adopt_payload(self, name: str, about: Mapping[str, Any]) -> int:
        return int(await self._tarantool.call("orphan_adopt_payload", name, dict(about)))

    async def discard_orphans(self, names: Sequence[str]) -> int:
        return int(await self._tarantool.call("orphans_discard", list(names)))

    async def end_recovery(self, *, adopted: bool) -> int:
        return int(await self._tarantool.call("orphans_end", adopted, self._grace, timeout=_LONG))
