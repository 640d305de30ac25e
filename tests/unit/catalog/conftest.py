"""A catalog of three peers, on SQLite and stores in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.catalog_kit import CatalogKit, catalog_kit


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written while others act, not while they sleep."""
    monkeypatch.setattr("minitoolstream.services.write_together._LONGEST_REST", 0)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[CatalogKit]:
    made = catalog_kit(tmp_path, "eu", "us", "asia")
    yield made
    await made.store.close()
