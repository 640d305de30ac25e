"""Turns pip's talk into one line that counts: `pip install -r FILE | show_pip.py FILE`. Needs nothing but Python."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    total = Path(sys.argv[1]).read_text().count("==")
    live, count = sys.stdout.isatty(), 0
    for line in sys.stdin:
        if line.startswith(("Collecting ", "Requirement already satisfied")):
            count += 1
            if live:
                sys.stdout.write(f"\r  {count} of about {total} packages")
        elif live and line.startswith("Installing collected"):
            sys.stdout.write("\r\x1b[2K  unpacking them")
        sys.stdout.flush()
    sys.stdout.write("\r\x1b[2K" if live else f"  {count} packages\n")


if __name__ == "__main__":
    main()
