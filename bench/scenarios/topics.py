"""Topics: keyed publishes over 8 partitions against 1, publishes without and with a producer, and transactions."""

from __future__ import annotations

import itertools
import statistics

import msgspec

from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request, Step
from bench.measure import Bench, Variant, ratio_row
from bench.rows import Row, median_latency
from bench.scenarios.batch import MESSAGES, batch
from bench.scenarios.loads import expect_receipts, inline
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE

KB = 1024
IN_FLIGHT = 16
KEYS = 64
PARTITIONS = 8
PUBLISHES = 10
TRANSACTIONS = 4
INPUT, OUTPUT = "bench.topics-input", "bench.topics-output"


def run(bench: Bench) -> list[Row]:
    return [_partitions(bench), _producers(bench), _transactions(bench)]


def _partitions(bench: Bench) -> Row:
    variants = [_keyed(bench, count) for count in (1, PARTITIONS)]
    samples = bench.interleaved(f"{KEYS} keys", variants)
    return ratio_row(
        "partitions",
        f"keyed inline publish, {PARTITIONS} partitions against one (1 KB, {IN_FLIGHT} in flight, {KEYS} keys)",
        samples[variants[1].name],
        samples[variants[0].name],
        unit="one",
    )


def _keyed(bench: Bench, partitions: int) -> Variant:
    subject = f"bench.topics-{partitions}"
    bench.api.call("PUT", f"/v1/subjects/{subject}", {"partitions": partitions})
    headers = {**bench.api.headers, "Content-Type": DEFAULT_CONTENT_TYPE}
    url = f"{bench.api.url}/v1/subjects/{subject}/messages"
    requests = [Request("POST", url, {**headers, "X-Mts-Group": f"key-{key}"}, KB) for key in range(KEYS)]

    def plan(count: int) -> Plan:
        return Plan(in_flight=IN_FLIGHT, count=count, requests=requests, capture=True)

    def check(result: LoadResult) -> None:
        expect_receipts(bench, result)
        used = {msgspec.json.decode(body)["partition"] for body in result.captured}
        if len(used) != partitions:
            raise BenchError(f"{len(used)} of {partitions} partitions were used")

    return Variant(f"{partitions} partition(s)", plan, check)


def _producers(bench: Bench) -> Row:
    """Without a producer nothing is looked up and nothing waits: it must stay the faster way."""
    variants = [inline(bench, "bench.topics-unnamed", KB, IN_FLIGHT), _named(bench)]
    samples = bench.interleaved("without and with a producer", variants)
    return ratio_row(
        "producers",
        f"inline publish without a producer against with one (1 KB, {IN_FLIGHT} in flight, {KEYS} producers)",
        samples["inline"],
        samples["named"],
        unit="named",
    )


def _named(bench: Bench) -> Variant:
    """Each message is the next one of its producer. There are more of them than requests in flight, so that a
    producer's seqnos come in their order."""
    headers = {**bench.api.headers, "Content-Type": DEFAULT_CONTENT_TYPE}
    url = f"{bench.api.url}/v1/subjects/bench.topics-named/messages"
    numbers = itertools.count()

    def request(number: int) -> Request:
        seqno, producer = divmod(number, KEYS)
        named = {"X-Mts-Producer-Id": f"producer-{producer}", "X-Mts-Seqno": str(seqno + 1)}
        return Request("POST", url, {**headers, **named}, KB)

    def plan(count: int) -> Plan:
        requests = [request(next(numbers)) for _ in range(count)]
        return Plan(in_flight=IN_FLIGHT, count=count, requests=requests, capture=True)

    return Variant("named", plan, lambda result: expect_receipts(bench, result))


def _transactions(bench: Bench) -> Row:
    """Consume, transform, produce: each takes the next message of its slot's durable, publishes ten, and acks it."""
    bench.once(batch(bench, INPUT, KB, 1), 1)
    samples = bench.interleaved("transactions", [_transaction(bench)])["transaction"]
    rates = [one.result.rate for one in samples]
    return Row(
        key="transactions",
        measure=f"transactions, {TRANSACTIONS} at a time (read one, begin, {PUBLISHES} inline publishes of 1 KB in "
        "turn, ack, commit)",
        unit="transactions/s",
        value=statistics.median(rates),
        rounds=rates,
        rate=statistics.median(rates),
        latency_ms=median_latency([one.result.latency_ms for one in samples]),
        note=f"{statistics.median(rates) * PUBLISHES:,.0f} messages/s",
    )


def _transaction(bench: Bench) -> Variant:
    runs = itertools.count()
    api, url = {**bench.api.headers, "Content-Type": "application/json"}, bench.api.url
    payload = {**bench.api.headers, "Content-Type": DEFAULT_CONTENT_TYPE, "X-Mts-Transaction-Id": "<id>"}

    def plan(count: int) -> Plan:
        name = f"transform-{next(runs)}"
        for slot in range(TRANSACTIONS):
            bench.api.call("PUT", f"/v1/subjects/{INPUT}/consumers/{name}-{slot}", {"start": "first"})
        page = f"{url}/v1/subjects/{INPUT}/subscribe?durable={name}-<slot>&limit=1"
        ack = f"{url}/v1/subjects/{INPUT}/consumers/{name}-<slot>/ack"
        done = '{"sequence":<sequence>,"from":<position>,"transaction_id":"<id>"}'
        steps = [
            Step("GET", page, bench.api.headers, take={"sequence": "sequence[]", "position": "position"}),
            Step("POST", f"{url}/v1/transactions", api, "{}", take={"id": "transaction_id"}),
            *[Step("POST", f"{url}/v1/subjects/{OUTPUT}/messages", payload, size=KB)] * PUBLISHES,
            Step("POST", ack, api, done),
            Step("POST", f"{url}/v1/transactions/<id>/commit", api, "{}"),
        ]
        return Plan(in_flight=TRANSACTIONS, count=count, steps=steps, capture=True)

    def check(result: LoadResult) -> None:
        if result.messages != result.succeeded:
            raise BenchError(f"{result.messages} messages for {result.succeeded} transactions")
        for body in result.captured:
            if msgspec.json.decode(body).get("state") != "committed":
                raise BenchError(f"not committed: {body[:300]}")

    return Variant("transaction", plan, check, warm_up=20, most=MESSAGES)
