"""The specification's targets: 1,000 publishes a second, 500 reads a second, 1,000 connections."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench, Sample, Variant
from bench.rows import Floor, Row, median_latency
from bench.scenarios.loads import inline

SUBJECT = "bench.targets"
KB = 1024


def run(bench: Bench) -> list[Row]:
    return [_publishes(bench), _reads(bench), _connections(bench)]


def _publishes(bench: Bench) -> Row:
    rate = 1000
    samples = repeat(bench, inline(bench, SUBJECT, 10 * KB, 256, rate=rate), rate)
    measure = f"spec: {rate:,} publishes a second (inline, 10 KB), p95"
    return target_row("target-publish", measure, samples, Floor(50, at_most=True))


def _reads(bench: Bench) -> Row:
    """A read is one message with its payload."""
    rate = 500
    sample = bench.once(inline(bench, SUBJECT, 10 * KB, 16), 200)
    receipts = [msgspec.json.decode(body) for body in sample.result.captured]
    requests = [
        Request("GET", f"{bench.api.url}/v1/messages/{receipt['sequence']}?inline=true", bench.api.headers)
        for receipt in receipts
    ]

    def check(result: LoadResult) -> None:
        if not all(msgspec.json.decode(body).get("data") for body in result.captured):
            raise BenchError("a message came back without its payload")

    def plan(count: int) -> Plan:
        return Plan(in_flight=256, count=count, requests=requests, rate=rate, capture=True)

    samples = repeat(bench, Variant("read", plan, check), rate)
    measure = f"spec: {rate} reads a second (10 KB with payload), p95"
    return target_row("target-read", measure, samples, Floor(100, at_most=True))


def _connections(bench: Bench) -> Row:
    connections = 1000
    samples = [
        bench.once(inline(bench, SUBJECT, KB, connections), connections * (2 if bench.quick else 5))
        for _ in range(bench.rounds)
    ]
    bench.say(f"{connections} connections: all answered")
    measure = f"spec: {connections:,} connections at once (inline, 1 KB)"
    row = target_row("target-connections", measure, samples, None)
    row.unit, row.value, row.floor, row.rounds = "n", connections, Floor(connections), ()
    return row


def repeat(bench: Bench, variant: Variant, rate: int) -> list[Sample]:
    """On a schedule, after half a second of warm-up."""
    bench.once(variant, rate // 2)
    samples = [bench.once(variant, int(rate * max(1.0, bench.seconds))) for _ in range(bench.rounds)]
    slow = ", ".join(f"{one.result.latency_ms['p95']:.1f}" for one in samples)
    bench.say(f"{variant.name} at {rate}/s: p95 {slow} ms")
    return samples


def target_row(key: str, measure: str, samples: Sequence[Sample], floor: Floor | None) -> Row:
    values = [one.result.latency_ms["p95"] for one in samples]
    return Row(
        key=key,
        measure=measure,
        unit="ms",
        value=statistics.median(values),
        floor=floor,
        rounds=values,
        rate=statistics.median(one.result.rate for one in samples),
        latency_ms=median_latency([one.result.latency_ms for one in samples]),
    )
