"""The ways to publish that scenarios compare, each as a variant of the same load."""

from __future__ import annotations

import msgspec

from bench.generator import LoadResult, Plan, Publish, Request
from bench.measure import Bench, Variant
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE


def raw_put(bench: Bench, size: int, in_flight: int) -> Variant:
    """The measure of all things: a presigned PUT into a bucket without events."""

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, requests=bench.raw.puts(count, size))

    return Variant("raw PUT", plan, lambda _: None)


def sink_put(bench: Bench, size: int, in_flight: int) -> Variant:
    """The same with an event for each, to a webhook that does nothing: no host could be faster."""

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, requests=bench.raw.puts(count, size, bench.raw.WITH_EVENTS))

    return Variant("do-nothing webhook", plan, lambda _: None)


def presigned_put(bench: Bench, subject: str, size: int, in_flight: int) -> Variant:
    """PUTs with tickets taken before; every receipt is asked for after the run."""
    upload_ids: list[str] = []

    def plan(count: int) -> Plan:
        tickets = bench.api.tickets(subject, count, size)
        upload_ids[:] = [ticket["upload_id"] for ticket in tickets]
        requests = [Request(one["method"], one["url"], one["headers"], size) for one in tickets]
        return Plan(in_flight=in_flight, count=count, requests=requests)

    def check(_: LoadResult) -> None:
        bench.expect_new(bench.api.receipts(bench.generator, upload_ids))

    return Variant("presigned PUT", plan, check)


def ticket_put_receipt(bench: Bench, subject: str, size: int, in_flight: int) -> Variant:
    """The whole way of a careful producer, timed as one."""
    publish = Publish(
        ticket_url=f"{bench.api.url}/v1/subjects/{subject}/uploads",
        receipt_url=f"{bench.api.url}/v1/uploads",
        headers={**bench.api.headers, "Content-Type": "application/json"},
        size=size,
    )

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, publish=publish, capture=True)

    return Variant("ticket, PUT, receipt", plan, lambda result: expect_receipts(bench, result))


def inline(bench: Bench, subject: str, size: int, in_flight: int, rate: float = 0) -> Variant:
    request = Request(
        "POST",
        f"{bench.api.url}/v1/subjects/{subject}/messages",
        {**bench.api.headers, "Content-Type": DEFAULT_CONTENT_TYPE},
        size,
    )

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, requests=[request], capture=True, rate=rate)

    return Variant("inline", plan, lambda result: expect_receipts(bench, result))


def expect_receipts(bench: Bench, result: LoadResult) -> None:
    bench.expect_new(msgspec.json.decode(body) for body in result.captured)
