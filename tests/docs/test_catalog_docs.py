"""The page on the catalog, command by command, on a stack with a Cassandra as `mts up --catalog` starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.integration.test_stack import Stack

PAGE = (ROOT / "docs/catalog.md").read_text("utf-8")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    yield made
    made.command("down")


def test_the_commands_of_the_page_on_the_catalog_work(stack: Stack) -> None:
    said = stack.mts("up", "--quick", "--catalog")
    assert "Cassandra" in said
    assert set(stack.pids()) >= {"catalog", "host", "tarantool"}
    first, copies, database = blocks("sh", PAGE)
    # The stack's own database is used.
    database = re.sub(r"^export MTS_CATALOG_DATABASE.*\n", "", database, flags=re.MULTILINE)
    shown = stack.shell("\n".join([first, copies, database]))
    assert "status   pinned" in shown
    assert "copies   2 of 2: eu, us" in shown
    assert ": 0 found" in shown
    assert f"{stack.status()['object_store']['endpoint']}/copies-eu/cid/" in shown
    assert "nothing to do" in shown  # `up` has migrated it
    assert re.search(r"cql://127.0.0.1:\d+/mts_catalog: 1.0.0, 1.1.0, 1.2.0, 1.3.0, 1.4.0\n", shown)
    # Another database for once: ours is there again behind it, with what it holds.
    elsewhere = stack.shell("MTS_CATALOG_DATABASE=sqlite mts up --quick && mts catalog list\n")
    assert "yours at sqlite" in elsewhere
    assert "pinned" in stack.shell("mts up --quick && mts catalog list\n")
