"""Durables: pages read and acked one after the other, and leases taken and acked."""

from __future__ import annotations

import itertools
import statistics

import msgspec

from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Step
from bench.measure import Bench, Sample, Variant
from bench.rows import Row, median_latency
from bench.scenarios.batch import MESSAGES, batch

PAGE = 100
SUBJECT = "bench.durables"
WORKERS = (1, 8)


def run(bench: Bench) -> list[Row]:
    backlog = (20 if bench.quick else 200) * MESSAGES
    bench.once(batch(bench, SUBJECT, 1024, 4), backlog // MESSAGES)
    most = backlog // PAGE
    variants = [_ordered(bench, most), *(_shared(bench, workers, most) for workers in WORKERS)]
    samples = bench.interleaved("durables", variants)
    return [
        _row("ordered", f"durable, ordered, one reader (a page of {PAGE} and its ack in turn)", samples["ordered"]),
        *(
            _row(
                f"shared-{workers}",
                f"durable, shared, {workers} worker(s) (a lease of {PAGE} and its acks in turn)",
                samples[f"shared by {workers}"],
            )
            for workers in WORKERS
        ),
    ]


def _ordered(bench: Bench, most: int) -> Variant:
    names = (f"ordered-{number}" for number in itertools.count())

    def plan(count: int) -> Plan:
        path = _durable(bench, next(names), "ordered")
        durable = path.rpartition("/")[2]
        headers = bench.api.headers
        page = f"{bench.api.url}/v1/subjects/{SUBJECT}/subscribe?durable={durable}&limit={PAGE}"
        take = {"all": "sequence[]", "last": "sequence[-1]"}
        steps = [
            Step("GET", page, headers, take=take),
            Step("POST", f"{bench.api.url}{path}/ack", _json(bench), '{"sequence":<last>}'),
        ]
        return Plan(in_flight=1, count=count, steps=steps, capture=True)

    return Variant("ordered", plan, _all_taken, most=most)


def _shared(bench: Bench, workers: int, most: int) -> Variant:
    names = (f"shared-{workers}-{number}" for number in itertools.count())

    def plan(count: int) -> Plan:
        url = bench.api.url + _durable(bench, next(names), "shared")
        lease = f'{{"limit":{PAGE},"seconds":60}}'
        ack = '{"lease_id":"<lease>","sequences":[<sequences>]}'
        steps = [
            Step("POST", f"{url}/lease", _json(bench), lease, take={"lease": "lease_id", "sequences": "sequence[]"}),
            Step("POST", f"{url}/ack", _json(bench), ack),
        ]
        return Plan(in_flight=workers, count=count, steps=steps, capture=True)

    return Variant(f"shared by {workers}", plan, _all_taken, most=most)


def _durable(bench: Bench, name: str, mode: str) -> str:
    """The path of a new durable that stands before the backlog."""
    path = f"/v1/subjects/{SUBJECT}/consumers/{name}"
    bench.api.call("PUT", path, {"mode": mode, "start": "first"})
    return path


def _json(bench: Bench) -> dict[str, str]:
    return {**bench.api.headers, "Content-Type": "application/json"}


def _all_taken(result: LoadResult) -> None:
    if result.messages != result.succeeded * PAGE:
        raise BenchError(f"{result.messages} messages in {result.succeeded} pages of {PAGE}")
    for body in result.captured:
        if "acked" not in (answer := msgspec.json.decode(body)) and "last_sequence" not in answer:
            raise BenchError(f"no ack: {answer}")


def _row(key: str, measure: str, samples: list[Sample]) -> Row:
    rates = [one.result.rate * PAGE for one in samples]
    return Row(
        key=f"durable-{key}",
        measure=measure,
        unit="msg/s",
        value=statistics.median(rates),
        rounds=rates,
        rate=statistics.median(rates),
        latency_ms=median_latency([one.result.latency_ms for one in samples]),
    )
