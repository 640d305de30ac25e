"""The commands of the pages for operators work, one after the other, on a stack of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.fsck import environ_of
from tests.live import Live, start_live


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("operator"))
    yield live
    live.stop()


def run(stack: Live, folder: Path, page: str) -> str:
    """All shell blocks of a page, as one script; `mts` has the settings of a host."""
    script = "".join(blocks("sh", (ROOT / "docs" / page).read_text("utf-8")))
    assert script
    environ = {
        **environ_of(stack, folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MTS_URL": stack.url,
        "url": stack.url,
        "auth": f"Authorization: Bearer {stack.token}",
    }
    command = ["bash", "-euc", script]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_page_on_consistency_work(stack: Live, tmp_path: Path) -> None:
    shown = run(stack, tmp_path, "consistency.md")
    assert shown.count("verdict: clean") == 2
    assert '"verdict":"clean"' in shown
    assert "the customer left" in shown
    assert json.loads((tmp_path / "fsck.json").read_text("utf-8"))["deep"] is True


def test_the_commands_of_the_page_on_export_work(stack: Live, tmp_path: Path) -> None:
    shown = run(stack, tmp_path, "export.md")
    assert "exported: 1 messages of letters" in shown
    assert "imported: 1 messages to letters-again" in shown
    assert "lang=en" in shown


def test_the_commands_of_the_page_on_troubleshooting_work(stack: Live, tmp_path: Path) -> None:
    assert "verdict: clean" in run(stack, tmp_path, "troubleshooting.md")
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["verdict"] == "clean"
