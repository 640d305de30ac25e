"""`make chaos`: kill cycles on real servers, and a table at the end. Ends with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from minitoolstream.config import load_settings
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.get_tarantool import get_tarantool
from scripts import tools
from tests.chaos.report import Summary
from tests.chaos.run import Chaos

CYCLES = 200
CHECK_EVERY = 20


def main() -> int:
    options = _options()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    console = Console()
    tools.get(console, "Tarantool", partial(get_tarantool, load_settings()["tarantool.binary"]))
    tools.get(console, "MinIO", get_minio)
    folder = Path(tempfile.mkdtemp(prefix="mts-chaos-"))
    console.say(f"seed {seed}: {options.cycles} cycles, checked every {options.check_every}; logs in {folder}")
    summary = _run(console, folder, seed, options)
    sys.stdout.write(summary.table() + "\n")
    if summary.promises_kept() and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if summary.promises_kept() else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos CHAOS='...'", description=__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help=f"kill cycles ({CYCLES})")
    parser.add_argument("--check-every", type=int, default=CHECK_EVERY, help=f"cycles between checks ({CHECK_EVERY})")
    parser.add_argument("--seed", type=int, help="that of a run to be repeated; a new one unless given")
    parser.add_argument("--keep", action="store_true", help="keep data and logs also when all is well")
    return parser.parse_args()


def _run(console: Console, folder: Path, seed: int, options: argparse.Namespace) -> Summary:
    with console.step("chaos") as step:
        step.update("starting the servers")
        chaos = Chaos(folder, seed, step.update)
        try:
            summary = chaos.run(options.cycles, options.check_every)
        finally:
            chaos.stop()
        step.done(f"{summary.cycles} cycles, {summary.acknowledged:,} messages [{step.elapsed()}]")
    return summary


if __name__ == "__main__":
    sys.exit(main())
