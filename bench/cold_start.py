"""`python -m bench.cold_start`: how long a new Lambda container takes until a function can be called, on one core.

Each package is unpacked as Lambda does, and imported by a new interpreter that sees nothing else. `import` is the time
inside of it, `start` that of the whole process; an empty one is shown beside, since Lambda starts its own.
"""

from __future__ import annotations

import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from bench import machine
from scripts import package_functions

RESULT = Path(__file__).parent / "results" / "cold_start.md"
ROUNDS = 15
LIMIT_MS = 400
_IMPORT = """
import sys, time
sys.path.insert(0, {folder!r})
started = time.perf_counter()
import app
print(time.perf_counter() - started)
"""
_EMPTY = "print(0)"


def measure(code: str) -> tuple[float, float]:
    """Seconds of the process, and those that it tells itself."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, cwd="/", env={}
    )
    return time.perf_counter() - started, float(done.stdout)


def medians(code: str) -> tuple[float, float]:
    measure(code)  # brings the files into memory: what Lambda's own disk takes is not ours to measure
    rounds = [measure(code) for _ in range(ROUNDS)]
    return statistics.median(one for one, _ in rounds) * 1000, statistics.median(one for _, one in rounds) * 1000


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lines = [
        "# Cold start of the functions",
        "",
        f"One core, medians of {ROUNDS}. `publish` is to be below {LIMIT_MS} ms. Made by `python -m bench.cold_start`.",
        "",
        f"{machine.hardware()}, load before {os.getloadavg()[0]:.1f}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.",
        "",
        "| function | package | import | start |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        lines.append(f"| an empty interpreter | | | {medians(_EMPTY)[0]:.0f} ms |")
        for name, package in package_functions.build(Path(temporary) / "packages").items():
            folder = Path(temporary) / name
            with zipfile.ZipFile(package) as opened:
                opened.extractall(folder)
            start, imported = medians(_IMPORT.format(folder=str(folder)))
            size = package.stat().st_size / 2**20
            lines.append(f"| `{name}` | {size:.1f} MiB | {imported:.0f} ms | {start:.0f} ms |")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n", "utf-8")
    print(RESULT)


if __name__ == "__main__":
    main()
