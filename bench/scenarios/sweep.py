"""Expiry: how fast messages and objects go, and what publishers notice of it."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.errors import BenchError
from bench.measure import Bench, Sample
from bench.rows import Floor, Row, median_latency
from bench.scenarios.isolation import fill_rows
from bench.scenarios.loads import inline, presigned_put

KB = 1024
DOOMED, SINGLES, BUSY = "bench.doomed", "bench.singles", "bench.busy"
IN_FLIGHT = 16
SLOWER = 2.0


def run(bench: Bench) -> list[Row]:
    rows, objects = (5_000, 300) if bench.quick else (50_000, 3_000)
    expired = [_messages_a_second(bench, rows) for _ in range(bench.rounds)]
    deleted = [_objects_a_second(bench, objects) for _ in range(bench.rounds)]
    bench.say(f"swept {statistics.median(expired):,.0f} messages/s, {statistics.median(deleted):,.0f} objects/s")
    return [
        _rate("sweep-messages", f"sweep: messages expired a second ({rows:,} rows of keyed batches)", expired),
        _rate("sweep-objects", f"sweep: objects deleted a second ({objects:,} single messages of 1 KB)", deleted),
        _beside(bench, rows, objects),
    ]


def _rate(key: str, measure: str, values: list[float]) -> Row:
    return Row(key=key, measure=measure, unit="/s", value=statistics.median(values), rounds=values)


def _messages_a_second(bench: Bench, rows: int) -> float:
    _keep(bench, DOOMED, None)
    fill_rows(bench, DOOMED, rows)
    begun = time.perf_counter()
    messages, _ = _sweep(bench, DOOMED)
    return messages / (time.perf_counter() - begun)


def _objects_a_second(bench: Bench, count: int) -> float:
    _fill_objects(bench, count)
    begun = time.perf_counter()
    _, objects = _sweep(bench, SINGLES)
    return objects / (time.perf_counter() - begun)


def _fill_objects(bench: Bench, count: int) -> None:
    _keep(bench, SINGLES, None)
    bench.once(presigned_put(bench, SINGLES, KB, IN_FLIGHT), count)


def _keep(bench: Bench, subject: str, messages: int | None) -> None:
    """How many of the newest stay: what was filled goes when it is said to."""
    bench.api.call("PUT", f"/v1/subjects/{subject}", {"max_messages": messages})


def _sweep(bench: Bench, subject: str) -> tuple[int, int]:
    """Let it go, and sweep until nothing is left to do: messages and objects that went."""
    _keep(bench, subject, 1)
    messages = objects = 0
    while True:
        swept = bench.api.call("POST", "/v1/sweep")
        messages, objects = messages + swept["messages"], objects + swept["objects_deleted"]
        if swept["clocks_differ"]:
            raise BenchError("the clocks of Tarantool and MinIO differ: nothing expires")
        if swept["finished"]:
            return messages, objects


def _beside(bench: Bench, rows: int, objects: int) -> Row:
    """p95 of publishes while a backlog is swept, against p95 without, round by round."""
    publish = inline(bench, BUSY, KB, IN_FLIGHT)
    count = max(100, int(bench.once(publish, publish.warm_up).result.rate * bench.seconds))
    alone: list[Sample] = []
    beside: list[Sample] = []
    swept: list[float] = []
    for number in range(bench.rounds):
        alone.append(bench.once(publish, count))
        with _sweeping(bench, rows, objects, swept):
            beside.append(bench.once(publish, count))
        p95 = [one[-1].result.latency_ms["p95"] for one in (alone, beside)]
        bench.say(f"publish beside a sweep: round {number + 1} of {bench.rounds}: p95 {p95[0]:.1f} -> {p95[1]:.1f} ms")
    ratios = [
        one.result.latency_ms["p95"] / other.result.latency_ms["p95"] for one, other in zip(beside, alone, strict=True)
    ]
    window = statistics.median(one.result.seconds for one in beside)
    return Row(
        key="sweep-publish",
        measure=f"p95 of inline publishes (1 KB, {IN_FLIGHT} in flight) while {rows:,} rows and {objects:,} objects "
        "are swept, against without",
        unit="x",
        value=statistics.median(ratios),
        floor=Floor(SLOWER, at_most=True),
        rounds=ratios,
        rate=statistics.median(one.result.rate for one in beside),
        base_rate=statistics.median(one.result.rate for one in alone),
        latency_ms=median_latency([one.result.latency_ms for one in beside]),
        base_latency_ms=median_latency([one.result.latency_ms for one in alone]),
        note=f"swept in {statistics.median(swept):.1f} s, measured for {window:.1f} s",
    )


@contextmanager
def _sweeping(bench: Bench, rows: int, objects: int, swept: list[float]) -> Iterator[None]:
    """A backlog of rows and one of objects go while the block runs."""
    _keep(bench, DOOMED, None)
    fill_rows(bench, DOOMED, rows)
    _fill_objects(bench, objects)

    def work() -> None:
        begun = time.perf_counter()
        _sweep(bench, SINGLES)
        _sweep(bench, DOOMED)
        swept.append(time.perf_counter() - begun)

    sweeper = threading.Thread(target=work)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.join()
