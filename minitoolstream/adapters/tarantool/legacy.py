"""The first server's spaces, read as they are; and our side of an import."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolError

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.ports.legacy import ImportRow, ImportState, LegacyMessage, LegacyPosition

_STEP = 60.0


class LegacyTarantool:
    """Fulfils `ports.legacy.LegacySource`."""

    def __init__(self, address: str, user: str, password: str, timeout: float) -> None:
        host, _, port = address.rpartition(":")
        self.name = address
        self._timeout = timeout
        self._connection = asynctnt.Connection(
            host=host.strip("[]"),
            port=int(port),
            username=user,
            password=password,
            connect_timeout=timeout,
            request_timeout=_STEP,
            reconnect_timeout=0,
        )

    async def messages(self, after: int, limit: int) -> list[LegacyMessage]:
        rows = await self._select("message", [after], limit)
        return [LegacyMessage(row[0], dict(row[1] or {}), row[2], row[3], row[4]) for row in rows]

    async def count(self) -> int:
        found = await self._ask(lambda: self._connection.call("box.space.message:len", []))
        return int(found.body[0])

    async def positions(self, after: tuple[str, str] | None, limit: int) -> list[LegacyPosition]:
        rows = await self._select("consumers", list(after or ()), limit)
        return [LegacyPosition(row[0], row[1], row[2]) for row in rows]

    async def _select(self, space: str, after: list[Any], limit: int) -> list[Any]:
        iterator = asynctnt.Iterator.GT if after else asynctnt.Iterator.ALL
        found = await self._ask(lambda: self._connection.select(space, after, limit=limit, iterator=iterator))
        return list(found.body or ())

    async def _ask(self, question: Any) -> Any:
        try:
            if not self._connection.is_connected:
                await asyncio.wait_for(self._connection.connect(), self._timeout)
            return await question()
        except TarantoolError as error:
            raise MtsError("bad_request", f"the Tarantool at {self.name} refuses: {error}") from None
        except (OSError, TimeoutError) as error:
            raise unavailable(f"the Tarantool at {self.name} cannot be reached: {error}") from None

    async def close(self) -> None:
        await self._connection.disconnect()


class TarantoolImport:
    """Fulfils `ports.legacy.ImportStore`."""

    def __init__(self, connection: Connection) -> None:
        self._tarantool = connection

    async def begin(self, source: str) -> ImportState:
        found = await self._tarantool.call("import_begin", source)
        return ImportState(int(found["upto"]), bool(found["done"]))

    async def apply(self, rows: Sequence[ImportRow]) -> int:
        packed = [
            [
                row.message.sequence,
                row.headers,
                row.message.object_name,
                row.message.subject,
                row.message.create_at,
                row.size,
                row.content_type,
                row.is_missing,
            ]
            for row in rows
        ]
        return int(await self._tarantool.call("import_apply", packed, timeout=_STEP))

    async def go_on_behind(self, sequence: int) -> None:
        await self._tarantool.call("import_go_on_behind", sequence)

    async def finish(self) -> None:
        await self._tarantool.call("import_finish")
