"""Subjects and their settings on Tarantool: one stored function a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.config import Settings
from minitoolstream.domain.lanes import Lanes
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject_settings import Subject


class TarantoolSubjects:
    """Fulfils `ports.SubjectStore`."""

    def __init__(self, tarantool: Connection, settings: Settings) -> None:
        self._tarantool = tarantool
        self._grace = int(settings["uploads.put_grace"])

    async def put(self, subject: str, changes: Mapping[str, Any]) -> tuple[Subject, bool]:
        done = await self._tarantool.call("subject_put", subject, changes)
        return _subject(done["subject"]), done["created"]

    async def get(self, subject: str) -> Subject:
        return _subject(await self._tarantool.call("subject_get", subject))

    async def delete(self, subject: str) -> bool:
        return bool((await self._tarantool.call("subject_delete", subject, self._grace))["purging"])

    async def clear_deleted(self, limit: int) -> tuple[int, bool]:
        done = await self._tarantool.call("subject_purge", limit, self._grace)
        return done["purged"], done["more"]

    async def lanes(self, subject: str) -> Lanes | None:
        active = await self._tarantool.call("lanes_get", subject)
        return None if active is None else Lanes.of((lane["hash_from"], lane["partition"]) for lane in active)

    async def split_partitions(self) -> int:
        return len((await self._tarantool.call("partitions_tick"))["split"])

    async def trim_routes(self) -> int:
        return int(await self._tarantool.call("routes_trim"))


def _subject(fields: dict[str, Any]) -> Subject:
    for partition in fields["partitions"]:
        for name in ("next_offset", "split_at"):
            if partition.get(name) is not None:
                partition[name] = wire_number(partition[name])
    fields["latest_sequence"] = wire_number(fields["latest_sequence"])
    return msgspec.convert(fields, Subject)
