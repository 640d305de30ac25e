"""`mts fsck`: objects a second, and its memory, which must not grow with what it checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.measure import Bench
from bench.rows import Floor, Row
from bench.scenarios.loads import inline

KB = 1024
SUBJECT = "bench.fsck"
LEVELS = (5_000, 25_000)
QUICK_LEVELS = (300, 1_200)
_AT_ONCE = 5_000


@dataclass(frozen=True)
class Checked:
    objects: int
    seconds: float
    megabytes: float

    @property
    def rate(self) -> float:
        return self.objects / self.seconds


def run(bench: Bench) -> list[Row]:
    stored, found = 0, []
    for level in QUICK_LEVELS if bench.quick else LEVELS:
        bench.say(f"storing {level - stored:,} objects")
        while stored < level:
            # One at a time: each message is an object of its own. In pieces, since a run of the generator is bounded.
            count = min(_AT_ONCE, level - stored)
            bench.once(inline(bench, SUBJECT, KB, 1), count)
            stored += count
        found.append(_fsck(bench, "--sample", "0"))
        bench.say(f"fsck of {found[-1].objects:,} objects: {found[-1].seconds:.1f} s")
    first, last = found[0], found[-1]
    deep = _fsck(bench, "--deep")
    return [
        Row("fsck", f"fsck: objects a second ({last.objects:,})", "n", last.rate, note="listing and rows"),
        Row("fsck-deep", f"fsck --deep: objects of 1 KB a second ({deep.objects:,})", "n", deep.rate),
        Row("fsck-memory", f"fsck: peak memory with {last.objects:,} objects, MB", "n", last.megabytes),
        Row(
            "fsck-flat",
            f"fsck: memory with {last.objects:,} objects against {first.objects:,}",
            "x",
            last.megabytes / first.megabytes,
            Floor(1.5, at_most=True),
            "1.0",
        ),
    ]


def _fsck(bench: Bench, *arguments: str) -> Checked:
    """The command, in a process of its own. What the system tells of an ended one counts its parent's memory too, so
    its peak is asked for while it runs."""
    environ = {**os.environ, "MTS_HOME": str(bench.stack.home), "XDG_STATE_HOME": str(bench.stack.folder / "state")}
    report = bench.stack.folder / "fsck.json"
    command = [sys.executable, "-m", "minitoolstream.cli.main", "fsck", "--report", str(report), *arguments]
    started = time.monotonic()
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _peak(process.pid))
        time.sleep(0.02)
    seconds = time.monotonic() - started
    if process.returncode:
        raise BenchError(f"mts fsck ended with {process.returncode}")
    objects = json.loads(report.read_bytes())["objects"]
    return Checked(objects["needed"]["count"], seconds, peak / 1024)


def _peak(pid: int) -> int:
    """In KiB; 0 when the process has just ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) if found else 0
