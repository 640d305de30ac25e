"""What a check asks of Tarantool: one stored function a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.config import Settings
from minitoolstream.domain.message import Extent
from minitoolstream.ports import Lane, LanePage, Pointing, RowFacts, Summary, UploadFacts

_WALK = 3600.0
"""Seconds a call may take that walks all rows; it lets others pass on its way."""


class TarantoolAudit:
    """Fulfils `ports.AuditStore`."""

    def __init__(self, tarantool: Connection, settings: Settings) -> None:
        self._tarantool = tarantool
        self._pack_grace = int(settings["packs.grace"])

    async def rows(self, after: int, limit: int) -> list[RowFacts]:
        return [RowFacts(*fields) for fields in await self._tarantool.call("audit_rows", after, limit)]

    async def rows_at(self, keys: Sequence[int]) -> dict[int, Extent]:
        found = await self._tarantool.call("audit_rows_at", list(keys))
        return {row[0]: replace(Extent(*row), missing=missing) for row, missing in found}

    async def objects(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(name, refs) for name, refs in await self._page("objects", after, limit)]

    async def uploads(self, after: str, limit: int) -> list[UploadFacts]:
        return [UploadFacts(*fields) for fields in await self._page("uploads", after, limit)]

    async def trash(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(name, due_at) for name, due_at in await self._page("trash", after, limit)]

    async def lanes(self, subject: str, partition: int) -> LanePage:
        found = await self._tarantool.call("audit_lanes", subject, partition, timeout=_WALK)
        return LanePage([_lane(fields) for fields in found["lanes"]], found["more"])

    async def names(self, names: Sequence[str]) -> dict[str, Pointing]:
        return _pointing(await self._tarantool.call("audit_names", list(names), timeout=_WALK))

    async def summary(self) -> Summary:
        return Summary(**await self._tarantool.call("audit_summary"))

    async def mend_lane(self, subject: str, partition: int) -> Lane:
        return _lane(await self._tarantool.call("audit_mend_lane", subject, partition, timeout=_WALK))

    async def mend_refs(self, names: Sequence[str]) -> int:
        found = _pointing(await self._tarantool.call("audit_mend_refs", list(names), timeout=_WALK))
        return sum(one.mended for one in found.values())

    async def keep(self, names: Sequence[str]) -> list[str]:
        found = _pointing(await self._tarantool.call("audit_keep", list(names), timeout=_WALK))
        return [name for name, one in found.items() if one.mended]

    async def discard_orphans(self, names: Sequence[str]) -> list[str]:
        found = await self._tarantool.call("audit_discard_orphans", list(names), self._pack_grace, timeout=_WALK)
        return [name for name, one in _pointing(found).items() if one.mended]

    async def quarantine(self, rows: Sequence[tuple[int, str, str]]) -> int:
        return int(await self._tarantool.call("missing_add", [list(row) for row in rows]))

    async def missing_packs(self, after: str, listed: Sequence[str]) -> list[str]:
        return list(await self._tarantool.call("packs_missing", after, list(listed)))

    async def quarantine_object(self, name: str, reason: str) -> int:
        return int(await self._tarantool.call("missing_add_object", name, reason, timeout=_WALK))

    async def release(self, keys: Sequence[int]) -> int:
        return int(await self._tarantool.call("missing_release", list(keys)))

    async def put_report(self, object_name: str, size: int) -> None:
        await self._tarantool.call("consistency_put", {"object_name": object_name, "size": size})

    async def get_report(self) -> tuple[str, int] | None:
        found = await self._tarantool.call("consistency_get")
        return (found["object_name"], found["size"]) if found else None

    async def _page(self, what: str, after: str, limit: int) -> list[list[Any]]:
        return list(await self._tarantool.call("audit_page", what, after, limit))


def _lane(fields: dict[str, Any]) -> Lane:
    return Lane(**fields)


def _pointing(found: dict[str, dict[str, Any]]) -> dict[str, Pointing]:
    return {
        name: Pointing(
            one["rows"], one["stored"], one.get("refs"), one["trash"], one.get("upload"), bool(one.get("mended"))
        )
        for name, one in found.items()
    }
