"""A publisher with 1,000 readers waiting, on a subject where nothing happens and on its own, against none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.generator import Plan
from bench.measure import Bench, Sample, Variant, ratio_row
from bench.rows import Floor, Row, median_latency
from bench.scenarios.live import delivered, readers
from bench.scenarios.loads import inline

KB = 1024
READERS = 1000
PUBLISHERS = 16
SUBJECT, IDLE = "bench.waiting", "bench.waiting-idle"
PACE = 2
"""Publishes a second where each wakes every reader: 2,000 deliveries a second, far less than the host can do."""
KINDS = {"streams": True, "long polls": False}
SETTLE = 1.0


def run(bench: Bench) -> list[Row]:
    return [*_idle(bench), *_woken(bench)]


def _idle(bench: Bench) -> list[Row]:
    bench.once(inline(bench, IDLE, KB, 1), 1)
    variants = [_publish(bench, "none", IDLE, 0), *(_publish(bench, kind, IDLE, READERS) for kind in KINDS)]
    samples = bench.interleaved(f"{READERS} waiting elsewhere", variants)
    rows = []
    for kind in KINDS:
        measure = f"inline publish, {READERS:,} {kind} waiting elsewhere (1 KB, {PUBLISHERS} in flight)"
        rows.append(
            ratio_row(f"waiting-{_key(kind)}", measure, samples[kind], samples["none"], unit="alone", floor=0.75)
        )
        rows.append(_p95(f"waiting-{_key(kind)}-p95", "the same, its p95", samples[kind], samples["none"]))
    return rows


def _woken(bench: Bench) -> list[Row]:
    """Every publish wakes all of them, so its rate is a pace, and what counts is how long it takes."""
    none = _publish(bench, "none", SUBJECT, 0, PACE)
    variants = [none, *(_publish(bench, kind, SUBJECT, READERS, PACE) for kind in KINDS)]
    count = PACE * (2 if bench.quick else 8)
    samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
    for number in range(bench.rounds):
        for variant in variants if number % 2 else reversed(variants):
            samples[variant.name].append(bench.once(variant, count))
        times = ", ".join(f"{name} p95 {runs[-1].result.latency_ms['p95']:.1f} ms" for name, runs in samples.items())
        bench.say(f"{READERS} woken by each publish: round {number + 1} of {bench.rounds}: {times}")
    return [_woken_row(kind, samples[kind], samples["none"]) for kind in KINDS]


def _publish(bench: Bench, name: str, subject: str, count: int, pace: float = 0) -> Variant:
    publish = inline(bench, SUBJECT, KB, PUBLISHERS, rate=pace)

    def plan(operations: int) -> Plan:
        load = publish.plan(operations)
        if count:
            load.readers = [readers(bench, subject, count, stream=KINDS[name], expect=subject == SUBJECT)]
            load.settle = SETTLE
        return load

    return Variant(name, plan, publish.check)


def _p95(key: str, measure: str, ours: Sequence[Sample], base: Sequence[Sample]) -> Row:
    pairs = zip(ours, base, strict=True)
    slower = [one.result.latency_ms["p95"] / other.result.latency_ms["p95"] for one, other in pairs]
    return Row(
        key,
        measure,
        "alone",
        statistics.median(slower),
        Floor(1.33, at_most=True),
        rounds=slower,
        latency_ms=median_latency([one.result.latency_ms for one in ours]),
        base_latency_ms=median_latency([one.result.latency_ms for one in base]),
    )


def _woken_row(kind: str, ours: Sequence[Sample], base: Sequence[Sample]) -> Row:
    row = _p95(
        f"woken-{_key(kind)}",
        f"p95 of a publish that wakes {READERS:,} {kind} ({PACE} a second)",
        ours,
        base,
    )
    p95 = statistics.median(delivered(one).latency_ms["p95"] for one in ours)
    row.floor = None
    row.note = f"95 % of the events are there {p95:,.0f} ms after the publisher's answer"
    return row


def _key(kind: str) -> str:
    return kind.replace(" ", "-")
