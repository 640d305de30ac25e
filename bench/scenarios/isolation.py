"""A quiet subject beside a noisy one: publishers, 2,000 waiting readers, and a large backlog that is swept."""

from __future__ import annotations

import itertools
import os
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench, Sample, Variant, ratio_row
from bench.rows import Row
from bench.scenarios.fetch import PAGE, fetch
from bench.scenarios.live import readers
from bench.scenarios.loads import inline, presigned_put
from bench.scenarios.reading import page_starts
from minitoolstream.domain.media_types import FRAMES

KB = 1024
QUIET, NOISY = "bench.quiet", "bench.noisy"
PAGES = 10
PARTITIONS = 256
BATCH = 1000
FLOOR = 0.67


@dataclass
class Noise:
    """A load on another subject: so many publishes a second, woken readers, and rows of a deleted subject to sweep.

    Its publishers keep a pace well below what the machine can do: when they take all there is, everybody gets less,
    and that is no question of isolation.
    """

    name: str
    publishers: int
    pace: int
    readers: int
    swept: list[float] = field(default_factory=list)
    """Seconds that each sweep took."""
    kept: list[float] = field(default_factory=list)
    """Shares of its pace that it kept."""
    cpu: float = 0
    """What it takes of a core while nothing else happens, without the sweep."""

    def __str__(self) -> str:
        crowd = f", {self.readers:,} readers woken by each, half streams, half long polls" if self.readers else ""
        return f"{self.publishers} publishers, {self.pace} a second together{crowd}"


def run(bench: Bench) -> list[Row]:
    bench.once(presigned_put(bench, QUIET, KB, 16), PAGES * PAGE)
    starts = page_starts(bench, QUIET, PAGE, PAGES)
    quiet = [inline(bench, QUIET, KB, 1), fetch(bench.api, QUIET, "fetch", 1, starts)]
    noises = [Noise("crowd", 4, 1, 2000), Noise("flood", 64, 200, 0)]
    backlog = 5_000 if bench.quick else 50_000
    for noise in noises:
        noise.cpu = _cpu(bench, noise)
    counts = {one.name: max(50, int(bench.once(one, one.warm_up).result.rate * bench.seconds)) for one in quiet}
    alone: dict[str, list[Sample]] = {one.name: [] for one in quiet}
    beside: dict[tuple[str, str], list[Sample]] = {
        (noise.name, one.name): [] for noise, one in itertools.product(noises, quiet)
    }
    for number in range(bench.rounds):
        for one in quiet:
            alone[one.name].append(bench.once(one, counts[one.name]))
            for noise in noises:
                with _making(bench, noise, backlog):
                    beside[noise.name, one.name].append(bench.once(one, counts[one.name]))
        found = ", ".join(
            f"{what} beside {noise} {runs[-1].result.rate:,.0f}/s (alone {alone[what][-1].result.rate:,.0f}/s)"
            for (noise, what), runs in beside.items()
        )
        bench.say(f"quiet: round {number + 1} of {bench.rounds}: {found}")
    return [
        _row(noise, one, beside[noise.name, one.name], alone[one.name], backlog)
        for noise, one in itertools.product(noises, quiet)
    ]


def _row(noise: Noise, quiet: Variant, ours: list[Sample], alone: list[Sample], backlog: int) -> Row:
    what = "inline publish, 1 KB" if quiet.name == "inline" else f"fetch of {PAGE}"
    window = statistics.median(one.result.seconds for one in ours)
    return ratio_row(
        f"isolation-{noise.name}-{quiet.name}",
        f"a quiet subject's {what} beside a {noise.name} (1 in flight; {noise.name}: {noise}, {backlog:,} rows being "
        "swept)",
        ours,
        alone,
        unit="alone",
        floor=FLOOR,
        note=f"without the sweep the noise takes {noise.cpu:.0%} of a core, and it kept "
        f"{statistics.median(noise.kept):.0%} of its pace; swept in {statistics.median(noise.swept):.1f} s, "
        f"measured for {window:.1f} s",
    )


@contextmanager
def _making(bench: Bench, noise: Noise, backlog: int) -> Iterator[None]:
    """The noise, from before the block begins until it ends."""
    doomed = f"{NOISY}-backlog"
    fill_rows(bench, doomed, backlog)
    with _loading(bench, noise):
        sweep = threading.Thread(target=_sweep, args=(bench, doomed, noise))
        sweep.start()
        try:
            yield
        finally:
            sweep.join()


@contextmanager
def _loading(bench: Bench, noise: Noise) -> Iterator[None]:
    """Its publishers and readers."""
    load = inline(bench, NOISY, KB, noise.publishers, rate=noise.pace).plan(noise.pace * 600)
    load.seconds, load.capture = 600, False
    if noise.readers:
        half = noise.readers // 2
        load.readers = [readers(bench, NOISY, half, stream=stream) for stream in (True, False)]
        load.settle = 1.0
    with bench.generator.running(load) as results:
        yield
    results[0].must_have_succeeded(results[0].operations)
    noise.kept.append(min(1.0, results[0].rate / noise.pace))


def _cpu(bench: Bench, noise: Noise) -> float:
    seconds = 2 if bench.quick else 10
    with _loading(bench, noise):
        before = sum(bench.stack.cpu().values())
        time.sleep(seconds)
        return (sum(bench.stack.cpu().values()) - before) / seconds


def _sweep(bench: Bench, subject: str, noise: Noise) -> None:
    """Delete it, and run the schedule's job until nothing is left of it."""
    begun = time.perf_counter()
    more = bench.api.call("DELETE", f"/v1/subjects/{subject}")["purging"]
    while more:
        more = bench.api.call("POST", "/v1/reconcile")["ticked"] > 0
    noise.swept.append(time.perf_counter() - begun)


def fill_rows(bench: Bench, subject: str, rows: int) -> None:
    """Keys spread over many partitions make many rows of a pack."""
    bench.api.call("PUT", f"/v1/subjects/{subject}", {"partitions": PARTITIONS})
    before = _stored_rows(bench)
    request = Request(
        "POST",
        f"{bench.api.url}/v1/subjects/{subject}/messages/batch",
        {**bench.api.headers, "Content-Type": FRAMES},
        body_file=str(_keyed_batch(bench.stack.folder)),
    )

    def all_stored(result: LoadResult) -> None:
        for body in result.captured:
            if msgspec.json.decode(body)["failed"]:
                raise BenchError(f"a batch was not stored: {body[:300]}")

    calls = 0
    while (added := _stored_rows(bench) - before) < rows:
        wanted = max(4, (rows - added) * calls // added if added else 4)

        def plan(count: int) -> Plan:
            return Plan(in_flight=4, count=count, requests=[request], capture=True)

        bench.once(Variant("keyed batch", plan, all_stored), wanted)
        calls += wanted


def _stored_rows(bench: Bench) -> int:
    return int(bench.api.call("GET", "/v1/status")["rows"])


def _keyed_batch(folder: Path) -> Path:
    path = folder / "keyed.frames"
    if not path.exists():
        frames = []
        for number in range(BATCH):
            meta = msgspec.json.encode({"group": f"key-{number}"})
            frames.append(struct.pack(">I", len(meta)) + meta + struct.pack(">I", 16) + os.urandom(16))
        path.write_bytes(b"".join(frames))
    return path
