"""checkov on infra/terraform, in a virtualenv of its own: its pins fight ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.program import Program
from minitoolstream.stack.venvs import private_venv
from scripts import tools


def get_checkov(*, update: Update = ignore) -> Program:
    return Program(private_venv("checkov", update=update) / "bin" / "checkov", "from PyPI, in our cache")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """With the settings in the folder, and nobody asked over the network."""
    return subprocess.run(
        [str(get_checkov().path), "--directory", ".", "--config-file", ".checkov.yaml"],
        cwd=folder,
        env={**os.environ, "BC_ANONYMOUS_USAGE_ENABLED": "false", "CHECKOV_RUN_SCA_PACKAGE_SCAN_V2": "false"},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    done = run(tools.ROOT / "infra" / "terraform")
    print(done.stdout + done.stderr)
    sys.exit(done.returncode)
