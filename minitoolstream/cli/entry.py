"""The entry point of `mts`. It imports nothing of weight, so that Ctrl-C is answered from the start."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from minitoolstream.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    run()
