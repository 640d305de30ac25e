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
async def store(request: pytest.FixtureRequest) -> AsyncIterator[MemoryMetadata | ClockedMetadata]:
    if request.param == "memory":
        yield MemoryMetadata(load_settings({"MTS_HOME": "/nonexistent", **SETTINGS}))
        return
    real = ClockedMetadata(request.getfixturevalue("tarantool_settings"))
    yield real
    await real.close()


@pytest.fixture
def kit(store: MemoryMetadata | ClockedMetadata) -> Kit:
    async def advance(seconds: float) -> None:
        if isinstance(store, ClockedMetadata):
            await store.advance(seconds)
        else:
            store.clock.advance(seconds)

    return Kit(store, advance, f"s-{uuid.uuid4().hex[:12]}")
