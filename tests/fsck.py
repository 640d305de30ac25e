"""A check of a test's stack, by the command that operators run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.live import Live


def environ_of(live: Live, folder: Path) -> dict[str, str]:
    return {**os.environ, **live.environ, "MTS_HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "state")}


def mts(live: Live, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, with what a host knows."""
    command = [sys.executable, "-m", "minitoolstream.cli.main", *arguments]
    environ = {**environ_of(live, folder), "MTS_URL": live.url}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)


def fsck(live: Live, folder: Path, *arguments: str) -> Any:
    """The report; its verdict fits the exit code."""
    done = mts(live, folder, "fsck", "--json", *arguments)
    assert done.returncode in {0, 4}, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"] == "faults") == (done.returncode == 4)
    return report


def assert_clean(live: Live, folder: Path, *arguments: str) -> Any:
    report = fsck(live, folder, *arguments)
    assert report["verdict"] == "clean", report["faults"]
    return report
