"""A real Tarantool whose clock a test moves, so that a ticket's week takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.bundle import bundled
from minitoolstream.config import Settings, load_settings
from minitoolstream.ports import NoMetrics
from tests.servers import TarantoolServer, start_tarantool


class ClockedMetadata(TarantoolMetadata):
    """The adapter, and the hand on the clock."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, NoMetrics())
        self._clock = Connection(
            settings["tarantool.address"],
            settings["tarantool.user"],
            settings.secret("tarantool.password"),
            5.0,
            NoMetrics(),
        )

    async def advance(self, seconds: float) -> None:
        await self._clock.call("clock_advance", seconds)

    async def close(self) -> None:
        await self._clock.close()
        await super().close()


def touch(server: TarantoolServer, name: str, *arguments: object) -> object:
    """Call one of the hands."""

    async def call() -> object:
        connection = Connection(server.address, server.user, server.password, 5.0, NoMetrics())
        try:
            return await connection.call(name, *arguments)
        finally:
            await connection.close()

    return asyncio.run(call())


def start_clocked_tarantool(folder: Path, last_sequence: int = 0) -> TarantoolServer:
    environ = {"MTS_TEST_LUA_FOLDER": str(bundled("tarantool")), "MTS_TEST_LAST_SEQUENCE": str(last_sequence)}
    return start_tarantool(folder, extra_env=environ, script=Path(__file__).with_suffix(".lua"))


def settings_for(server: TarantoolServer, folder: Path, extra: Mapping[str, str] | None = None) -> Settings:
    environ = {
        "MTS_HOME": str(folder / "home"),
        "MTS_TARANTOOL_ADDRESS": server.address,
        "MTS_TARANTOOL_USER": server.user,
        "MTS_TARANTOOL_PASSWORD": server.password,
        **(extra or {}),
    }
    return load_settings(environ, cwd=folder)
