"""Fetches by 1 and 16 readers against a bare Tarantool's select of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.bare import BareTarantool, bare_tarantool
from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench, Variant, ratio_row
from bench.rows import Row
from bench.scenarios.batch import MESSAGES, batch
from bench.scenarios.fetch import PAGE, fetch
from bench.scenarios.loads import presigned_put

WHOLE, PACKED = "bench.reading-whole", "bench.reading-packed"
PAGES = 10
READERS = (1, 16)


def run(bench: Bench) -> list[Row]:
    bench.once(presigned_put(bench, WHOLE, 1024, 16), PAGES * PAGE)
    bench.once(batch(bench, PACKED, 1024, 1), PAGES)
    with bare_tarantool(bench.stack, [WHOLE, PACKED]) as bare:
        return [
            *(_pages(bench, bare, readers) for readers in READERS),
            *(_extents(bench, bare, readers) for readers in READERS),
        ]


def _pages(bench: Bench, bare: BareTarantool, readers: int) -> Row:
    starts = page_starts(bench, WHOLE, PAGE, PAGES)
    ours, select = fetch(bench.api, WHOLE, "pages", readers, starts), bare.select(WHOLE, starts, PAGE, readers)
    samples = bench.interleaved(f"pages of {PAGE}, {readers} reader(s)", [ours, select])
    return ratio_row(
        f"reading-pages-{readers}",
        f"fetch, {PAGE} messages with URLs, {readers} reader(s) (select: their {PAGE} rows)",
        samples["pages"],
        samples["select"],
        unit="select",
        messages=PAGE,
        base_messages=PAGE,
    )


def _extents(bench: Bench, bare: BareTarantool, readers: int) -> Row:
    starts = page_starts(bench, PACKED, MESSAGES, PAGES)
    variants = [_extent(bench, starts, readers), bare.select(PACKED, starts, 1, readers)]
    samples = bench.interleaved(f"extents, {readers} reader(s)", variants)
    return ratio_row(
        f"reading-extents-{readers}",
        f"fetch, {MESSAGES:,} messages as an extent with one URL, {readers} reader(s) (select: its row)",
        samples["extents"],
        samples["select"],
        unit="select",
        messages=MESSAGES,
        base_messages=MESSAGES,
    )


def _extent(bench: Bench, starts: Sequence[int], readers: int) -> Variant:
    """A page is one pack."""
    path = f"/v1/subjects/{PACKED}/messages?limit={MESSAGES}&view=extents"
    urls = [f"{bench.api.url}{path}&start={start}" for start in starts]
    requests = [Request("GET", url, bench.api.headers) for url in urls]

    def check(result: LoadResult) -> None:
        for body in result.captured[: len(starts)]:
            extents = msgspec.json.decode(body)["extents"]
            if len(extents) != 1 or extents[0]["count"] != MESSAGES or not extents[0]["url"]:
                raise BenchError(f"{path} gave no extent of {MESSAGES} messages")

    def plan(count: int) -> Plan:
        return Plan(in_flight=readers, count=count, requests=requests, capture=True)

    return Variant("extents", plan, check)


def page_starts(bench: Bench, subject: str, size: int, pages: int) -> list[int]:
    """Where the first pages of a subject begin."""
    starts: list[int] = []
    following: int | str = "first"
    for _ in range(pages):
        page = bench.api.call("GET", f"/v1/subjects/{subject}/messages?start={following}&limit={size}")
        starts.append(int(page["messages"][0]["sequence"]))
        following = page["next_sequence"]
    return starts
