"""`make aws-local`: an emulated AWS and Tarantool, everything deployed with Terraform, and the end-to-end suite on it.

With AWS=--stay it is left running instead, until Ctrl-C. Needs terraform with the AWS provider: on PATH, or TERRAFORM.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from minitoolstream.config import load_settings
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ministack import get_ministack
from scripts import tools
from tests.e2e.deploy import Terraform, TerraformError, deploy
from tests.e2e.emulator import REGION, start_emulator
from tests.servers import start_tarantool

_LIVE_LOG = ["-o", "log_cli=true", "--log-cli-level=INFO", "--log-cli-format=%(message)s"]


def main(arguments: list[str]) -> int:
    command = os.environ.get("TERRAFORM") or "terraform"
    if not shutil.which(command):
        print(f"{command} is no command here: install terraform, or name it in TERRAFORM", file=sys.stderr)
        return 1
    os.environ["TERRAFORM"] = command
    for chatty in ("asynctnt", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    console = Console()
    tools.get(console, "ministack", get_ministack)
    tools.get(console, "Tarantool", lambda update: get_tarantool(load_settings()["tarantool.binary"], update=update))
    try:
        _check_provider()
        if "--stay" in arguments:
            return stay()
    except TerraformError as error:
        print(error, file=sys.stderr)
        return 1
    os.chdir(tools.ROOT)
    options = ["-q", "-k", "not host and not localstack", *_LIVE_LOG, "-o", "tmp_path_retention_policy=failed"]
    return int(pytest.main([*options, "tests/e2e", *arguments]))


def _check_provider() -> None:
    """Before anything is started: whether this terraform can get the AWS provider."""
    with tempfile.TemporaryDirectory(prefix="mts-aws-") as temporary:
        Terraform.prepared(Path(temporary), "local").run("init", "-no-color")


def stay() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    stopped = threading.Event()
    with tempfile.TemporaryDirectory(prefix="mts-aws-") as temporary, ExitStack() as servers:
        folder = Path(temporary)
        emulator = start_emulator(folder / "emulator")
        servers.callback(emulator.stop)
        tarantool = start_tarantool(folder / "tarantool")
        servers.callback(tarantool.stop)
        deployed = deploy(emulator, tarantool, folder)
        print(f"export AWS_ENDPOINT_URL={emulator.endpoint} AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test")
        print(f"export AWS_REGION={REGION}")
        print(f"export MTS_URL={deployed.url} MTS_TOKEN={deployed.token}")
        print(f"export MTS_OBJECT_STORE_QUEUE_URL={deployed.stack['queue_url']}")
        print(f"export MTS_AWS_DEAD_LETTERS={deployed.stack['dead_letters_url']}", flush=True)
        print("running; Ctrl-C ends and removes it", file=sys.stderr, flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        stopped.wait()
    return 0


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # what was started ends with us
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
