"""Pages of 100 messages with download URLs, from a host with one worker."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from bench.api import Api
from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench, Variant
from bench.rows import Floor, Row, median_latency
from bench.scenarios.batch import batch
from bench.scenarios.loads import presigned_put

PAGE = 100
MESSAGES = 1000
IN_FLIGHT = 4
KINDS = {
    "whole": ("fetch, 100 messages with URLs, one worker", Floor(60_000), "68-88k"),
    "packed": ("the same, messages of a pack (each URL signed with its range)", None, ""),
}


def run(bench: Bench) -> list[Row]:
    subjects = {kind: f"bench.fetch-{kind}" for kind in KINDS}
    bench.once(presigned_put(bench, subjects["whole"], 1024, 16), MESSAGES)
    bench.once(batch(bench, subjects["packed"], 1024, 1), 1)
    with bench.stack.another_host(workers=1) as host:
        api = Api(host.url, bench.stack.token)
        variants = [fetch(api, subject, kind, IN_FLIGHT) for kind, subject in subjects.items()]
        samples = bench.interleaved("fetch of 100", variants)
    rows = []
    for kind, (measure, floor, reference) in KINDS.items():
        rates = [one.result.rate * PAGE for one in samples[kind]]
        rows.append(
            Row(
                key=f"fetch-{kind}",
                measure=measure,
                unit="msg/s",
                value=statistics.median(rates),
                floor=floor,
                reference=reference,
                rounds=rates,
                rate=statistics.median(rates),
                latency_ms=median_latency([one.result.latency_ms for one in samples[kind]]),
            )
        )
    return rows


def fetch(api: Api, subject: str, name: str, in_flight: int, starts: Sequence[int] = ()) -> Variant:
    """Full pages, again and again: from each of `starts`, or over the subject's first MESSAGES messages."""
    paths, shortest = _pages(api, subject, starts)
    requests = [Request("GET", api.url + path, api.headers) for path in paths]

    def check(result: LoadResult) -> None:
        # The pages were looked at one by one before; answers of the same length are the same pages.
        if result.bytes_received < shortest * result.operations * 0.99:
            raise BenchError(f"pages of {subject} came back shorter than before")

    return Variant(name, lambda count: Plan(in_flight=in_flight, count=count, requests=requests), check)


def _pages(api: Api, subject: str, starts: Sequence[int]) -> tuple[list[str], int]:
    """Paths of full pages, and the length of the shortest answer."""
    paths, lengths = [], []
    following: int | str = "first"
    for number in range(len(starts) or MESSAGES // PAGE):
        start = starts[number] if starts else following
        path = f"/v1/subjects/{subject}/messages?start={start}&limit={PAGE}"
        page = api.call("GET", path)
        if len(page["messages"]) != PAGE or not all(message["url"] for message in page["messages"]):
            raise BenchError(f"{path} gave no full page with URLs")
        paths.append(path)
        lengths.append(len(msgspec.json.encode(page)))
        following = page["next_sequence"]
    return paths, min(lengths)
