"""`make chaos`: kill cycles on real servers, and a table at the end. Ends with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import Chaos

CYCLES = 200
CHECK_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos CHAOS='...'", description=__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help=f"kill cycles ({CYCLES})")
    parser.add_argument("--check-every", type=int, default=CHECK_EVERY, help=f"cycles between checks ({CHECK_EVERY})")
    parser.add_argument("--seed", type=int, help="that of a run to be repeated; a new one unless given")
    parser.add_argument("--keep", action="store_true", help="keep data and logs also when all is well")
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="mts-chaos-"))
    begun = time.monotonic()

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - begun), 60)
        sys.stderr.write(f"[{minutes:3}:{seconds:02}] {text}\n")
        sys.stderr.flush()

    say(f"seed {seed}: {options.cycles} cycles, checked every {options.check_every}; starting the servers")
    chaos = Chaos(folder, seed, say)
    try:
        summary = chaos.run(options.cycles, options.check_every)
    finally:
        chaos.stop()
    sys.stdout.write(summary.table() + "\n")
    if summary.promises_kept() and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        say(f"data and logs are in {folder}")
    return 0 if summary.promises_kept() else 1


if __name__ == "__main__":
    sys.exit(main())
