"""Expiry on Tarantool: one stored function a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.retention import Retention, SweepStep


class TarantoolRetention:
    """Fulfils `ports.RetentionStore`."""

    def __init__(self, tarantool: Connection) -> None:
        self._tarantool = tarantool

    async def apply(self, config: Mapping[str, Any], grace: int, *, given: bool) -> bool:
        await self._tarantool.call("trash_grace", grace)
        return bool(await self._tarantool.call("ttl_apply", dict(config), given))

    async def configure(self, changes: Mapping[str, Any]) -> None:
        await self._tarantool.call("ttl_configure", dict(changes))

    async def status(self) -> Retention:
        fields = await self._tarantool.call("retention_status")
        for hold in fields["holds"]:
            hold["position"] = wire_number(hold["position"])
        return msgspec.convert(fields, Retention)

    async def step(self, limit: int) -> SweepStep:
        return msgspec.convert(await self._tarantool.call("retention_step", limit), SweepStep)

    async def compare_clocks(self, store_ms: int) -> tuple[bool, int]:
        found = await self._tarantool.call("clocks_compare", store_ms)
        return bool(found["agree"]), int(found["drift_ms"])
