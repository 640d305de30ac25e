"""`make aws-local`: an emulated AWS and Tarantool, everything deployed with Terraform, and the end-to-end suite on it.

With AWS=--stay it is left running instead, until Ctrl-C. Needs terraform with the AWS provider: on PATH, or TERRAFORM.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from minitoolstream.config import load_settings
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ministack import get_ministack
from scripts import tools
from tests.e2e.deploy import deploy
from tests.e2e.emulator import start_emulator
from tests.servers import start_tarantool


def main(arguments: list[str]) -> int:
    command = os.environ.get("TERRAFORM") or shutil.which("terraform")
    if not command:
        print("terraform is needed: install it, or name it in TERRAFORM", file=sys.stderr)
        return 1
    os.environ["TERRAFORM"] = command
    console = Console()
    tools.get(console, "ministack", get_ministack)
    tools.get(console, "Tarantool", lambda update: get_tarantool(load_settings()["tarantool.binary"], update=update))
    if "--stay" in arguments:
        return stay()
    suite = ["-m", "pytest", "-q", "-k", "not host", str(tools.ROOT / "tests" / "e2e"), *arguments]
    return subprocess.run([sys.executable, *suite], cwd=tools.ROOT, check=False).returncode


def stay() -> int:
    with tempfile.TemporaryDirectory(prefix="mts-aws-") as temporary:
        folder = Path(temporary)
        emulator, tarantool = start_emulator(folder / "emulator"), start_tarantool(folder / "tarantool")
        try:
            deployed = deploy(emulator, tarantool, folder)
            print(f"export AWS_ENDPOINT_URL={emulator.endpoint} AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test")
            print(f"export MTS_URL={deployed.url} MTS_TOKEN={deployed.token}")
            print(f"export MTS_OBJECT_STORE_QUEUE_URL={deployed.stack['queue_url']}")
            print(f"export MTS_AWS_DEAD_LETTERS={deployed.stack['dead_letters_url']}")
            print("running; Ctrl-C ends and removes it", file=sys.stderr, flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            emulator.stop()
            tarantool.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
