"""Resident memory of the host and of an SDK process while 1 GiB goes in and comes out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.errors import BenchError
from bench.measure import Bench
from bench.processes import Peak
from bench.rows import Floor, Row

MIB = 2**20
SUBJECT = "bench.memory"
LIMIT_MB = 200


def run(bench: Bench) -> list[Row]:
    size = (128 if bench.quick else 1024) * MIB
    source, target = bench.stack.folder / "source", bench.stack.folder / "target"
    _random_file(source, size)
    host = Peak(bench.stack.host.pid)
    with host.watching():
        publisher, published, sequence = _transfer(bench, "publish", SUBJECT, source)
        reader, downloaded, _ = _transfer(bench, "download", sequence, target)
    if target.stat().st_size != size:
        raise BenchError(f"{target.stat().st_size} of {size} bytes came back")
    target.unlink()
    source.unlink()
    mebibytes = size / MIB
    bench.say(f"{mebibytes:.0f} MiB with the SDK: {published:.1f} s in, {downloaded:.1f} s out")
    return [
        _row("host", f"the host, all its processes, {mebibytes:.0f} MiB in and out", host.bytes),
        _row("publish", f"the SDK, publishing {mebibytes:.0f} MiB", publisher, mebibytes / published),
        _row("download", f"the SDK, downloading {mebibytes:.0f} MiB", reader, mebibytes / downloaded),
    ]


def _transfer(bench: Bench, action: str, what: str, file: Path) -> tuple[int, float, str]:
    """Peak memory in bytes, seconds, and what the process printed."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sdk_transfer", action, what, str(file)],
        env={**os.environ, "MTS_HOME": str(bench.stack.home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    peak = Peak(process.pid)
    with peak.watching():
        output, _ = process.communicate(timeout=600)
    if process.returncode:
        raise BenchError(f"the SDK could not {action}: exit {process.returncode}")
    return peak.bytes, time.perf_counter() - begun, output.strip()


def _random_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))


def _row(key: str, measure: str, peak: int, speed: float | None = None) -> Row:
    note = f"{speed:.0f} MiB/s" if speed else ""
    return Row(
        key=f"memory-{key}",
        measure=f"resident memory of {measure}",
        unit="MB",
        value=peak / 1e6,
        floor=Floor(LIMIT_MB, at_most=True),
        note=note,
    )
