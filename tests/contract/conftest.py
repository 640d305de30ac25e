"""A metadata store in two forms: the fake that services are tested with, and Tarantool through our adapter."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.config import Settings, load_settings
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool
from tests.contract.metadata_kit import SETTINGS, Kit


@pytest.fixture(scope="module")
def tarantool_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("clocked")
    server = start_clocked_tarantool(folder)
    yield settings_for(server, folder, SETTINGS)
    server.stop()


@pytest.fixture(params=["memory", "tarantool"])
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[Kit]:
    subject = f"s-{uuid.uuid4().hex[:12]}"
    if request.param == "memory":
        memory = MemoryMetadata(load_settings({"MTS_HOME": "/nonexistent", **SETTINGS}))

        async def advance(seconds: float) -> None:
            memory.clock.advance(seconds)

        yield Kit(memory, advance, subject)
        return
    real = ClockedMetadata(request.getfixturevalue("tarantool_settings"))
    yield Kit(real, real.advance, subject)
    await real.close()
