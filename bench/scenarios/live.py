"""Live delivery: inline publishes at full speed to 1, 10 and 100 streams of events."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.bare import bare_tarantool
from bench.errors import BenchError
from bench.generator import Delivered, LoadResult, Plan, Readers
from bench.measure import Bench, Sample, Variant
from bench.report import number
from bench.rows import Row, median_latency
from bench.scenarios.fetch import PAGE
from bench.scenarios.loads import inline, presigned_put
from bench.scenarios.reading import page_starts

KB = 1024
PUBLISHERS = 16
SUBSCRIBERS = (1, 10, 100)
SUBJECT, ROWS = "bench.live", "bench.live-rows"
PAGES = 10


def run(bench: Bench) -> list[Row]:
    bench.once(presigned_put(bench, ROWS, KB, 16), PAGES * PAGE)
    with bare_tarantool(bench.stack, [ROWS]) as bare:
        select = bare.select(ROWS, page_starts(bench, ROWS, PAGE, PAGES), PAGE, 1)
        variants = [select, *(_live(bench, count) for count in SUBSCRIBERS)]
        samples = bench.interleaved("live", variants)
    return [_row(count, samples[str(count)], samples["select"]) for count in SUBSCRIBERS]


def readers(bench: Bench, subject: str, count: int, *, stream: bool, expect: bool = False) -> Readers:
    """So many who wait for new messages of a subject."""
    headers = {**bench.api.headers, **({"Accept": "text/event-stream"} if stream else {})}
    url = f"{bench.api.url}/v1/subjects/{subject}/subscribe?limit=1000"
    return Readers(count, url, headers, stream=stream, expect=expect)


def delivered(sample: Sample) -> Delivered:
    if sample.result.delivered is None:
        raise BenchError("the load had no readers")
    return sample.result.delivered


def _live(bench: Bench, count: int) -> Variant:
    subject = f"{SUBJECT}-{count}"
    publish = inline(bench, subject, KB, PUBLISHERS)

    def plan(operations: int) -> Plan:
        load = publish.plan(operations)
        load.readers = [readers(bench, subject, count, stream=True, expect=True)]
        return load

    def check(result: LoadResult) -> None:
        publish.check(result)
        if result.delivered is None or result.delivered.events != count * result.succeeded:
            raise BenchError(f"{count} subscribers did not see {result.succeeded} messages each")

    return Variant(str(count), plan, check)


def _row(count: int, live: Sequence[Sample], select: Sequence[Sample]) -> Row:
    found = [delivered(one) for one in live]
    rates = [one.rate for one in found]
    rows = [one.result.rate * PAGE for one in select]
    ratio = statistics.median(one / other for one, other in zip(rates, rows, strict=True))
    publishes = statistics.median(one.result.rate for one in live)
    whole = median_latency([one.whole_ms for one in found])
    return Row(
        key=f"live-{count}",
        measure=f"delivered live to {count} subscriber(s) (1 KB, {PUBLISHERS} publishers; latency from the publisher's "
        f"answer to the event; select: rows by {PAGE})",
        unit="msg/s",
        value=statistics.median(rates),
        rounds=rates,
        rate=statistics.median(rates),
        base_rate=statistics.median(rows),
        latency_ms=median_latency([one.latency_ms for one in found]),
        base_latency_ms=median_latency([one.result.latency_ms for one in select]),
        note=f"{publishes:,.0f} publishes/s; {ratio:.2g} x select; from the publisher's request to the event "
        f"p50 {number(whole['p50'])}, p99 {number(whole['p99'])} ms",
    )
