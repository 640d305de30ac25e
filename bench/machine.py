"""Where a run took place: what a reader must know before comparing figures."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from bench.measure import Bench


def describe(bench: Bench) -> dict[str, str]:
    load = os.getloadavg()[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": hardware(),
        "store": f"MinIO on {_filesystem(bench.stack.folder)}",
        "host": f"{bench.stack.workers} worker(s), Python {platform.python_version()}",
        "rounds": f"{bench.rounds} of {bench.seconds:g} s, interleaved",
        "load before": f"{load:.1f}",
    }


def hardware() -> str:
    return f"{os.cpu_count()} cores ({_cpu_model()}), {_memory_gib():.0f} GiB"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _filesystem(folder: Path) -> str:
    """Type of the file system below a folder: the longest mount point that holds it."""
    best, kind = "", "an unknown file system"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        if folder.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return f"{kind} (in memory: raw PUTs look too good)" if kind == "tmpfs" else kind
