from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.world import World, open_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from open_world(tmp_path_factory.mktemp("model"))
