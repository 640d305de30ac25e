"""Publish and fetch with 10k, 100k and a million messages already stored, and the RAM these take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.errors import BenchError
from bench.measure import Bench, Sample, cpu_microseconds, ratios
from bench.rows import Floor, GrowthPoint, Row, median_latency
from bench.scenarios.batch import MESSAGES, batch
from bench.scenarios.fetch import PAGE, fetch
from bench.scenarios.loads import inline, raw_put

KB = 1024
SUBJECT = "bench.growth"
LEVELS = (10_000, 100_000, 1_000_000)
QUICK_LEVELS = (2_000, 10_000, 20_000)


def run(bench: Bench) -> tuple[list[Row], list[GrowthPoint]]:
    points: list[GrowthPoint] = []
    stored = filled = arena = 0
    for level in QUICK_LEVELS if bench.quick else LEVELS:
        before = arena_used(bench)
        added = _fill(bench, level - stored)
        stored, filled, arena = stored + added, filled + added, arena + arena_used(bench) - before
        points.append(_measure(bench, stored))
    return [_ram(arena / filled, filled), *_flat(points)], points


def arena_used(bench: Bench) -> int:
    """Bytes that Tarantool's tuples and indexes take."""
    try:
        return int(bench.api.call("GET", "/v1/status")["arena_used"])
    except KeyError as error:
        raise BenchError(f"GET /v1/status has no {error}") from error


def _fill(bench: Bench, count: int) -> int:
    """Packs of MESSAGES, until at least `count` more are stored."""
    calls = max(1, -(-count // MESSAGES))
    bench.say(f"storing {calls * MESSAGES:,} messages")
    load = batch(bench, SUBJECT, KB, 4)
    for done in range(0, calls, 100):
        bench.once(load, min(100, calls - done))
    return calls * MESSAGES


def _spread(bench: Bench, pages: int = 20) -> list[int]:
    """Sequences from the subject's head to near its end."""
    path = f"/v1/subjects/{SUBJECT}"
    first = int(bench.api.call("GET", f"{path}/messages?start=first&limit=1")["messages"][0]["sequence"])
    last = int(bench.api.call("GET", f"{path}/latest")["latest_sequence"]) - MESSAGES
    return [first + (last - first) * page // pages for page in range(pages)]


def _measure(bench: Bench, stored: int) -> GrowthPoint:
    variants = [
        raw_put(bench, 10 * KB, 16),
        inline(bench, SUBJECT, 10 * KB, 16),
        fetch(bench.api, SUBJECT, "fetch", 4, _spread(bench)),
    ]
    samples = bench.interleaved(f"{stored:,} stored", variants)
    raw, publishes, fetches = samples["raw PUT"], samples["inline"], samples["fetch"]
    return GrowthPoint(
        stored=stored,
        publish_ratio=statistics.median(ratios(publishes, raw)),
        publish_ms=median_latency([one.result.latency_ms for one in publishes]),
        publish_cpu=_cpu(publishes),
        fetch_ratio=statistics.median(ratios(fetches, raw)),
        fetch_rate=statistics.median(one.result.rate for one in fetches) * PAGE,
        fetch_ms=median_latency([one.result.latency_ms for one in fetches]),
        fetch_cpu=_cpu(fetches),
        arena_used=arena_used(bench),
    )


def _cpu(samples: Sequence[Sample]) -> dict[str, float]:
    return {part: statistics.median(cpu_microseconds(samples, part)) for part in ("host", "Tarantool")}


def _ram(bytes_each: float, messages: int) -> Row:
    return Row(
        key="ram",
        measure=f"RAM a message in packs of {MESSAGES:,} ({messages:,} stored)",
        unit="B",
        value=bytes_each,
        floor=Floor(20, at_most=True),
    )


def _flat(points: list[GrowthPoint]) -> list[Row]:
    """Last against first, each against the raw PUTs of its own rounds. Below 25 % all is noise."""
    span = f"{points[-1].stored:,} stored against {points[0].stored:,}"
    publish = points[-1].publish_ratio / points[0].publish_ratio
    reading = points[-1].fetch_ratio / points[0].fetch_ratio
    return [
        Row("growth-publish", f"growth: inline publish with {span}", "x", publish, Floor(0.75), "1.0"),
        Row("growth-fetch", f"growth: fetch with {span}", "x", reading, Floor(0.75), "1.0"),
    ]
