"""Batches: a thousand messages in one call against one raw PUT of as many bytes."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec

from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench, Variant, ratio_row
from bench.rows import Row
from bench.scenarios.loads import raw_put
from minitoolstream.domain.media_types import FRAMES
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE

MESSAGES = 1000
KB = 1024
IN_FLIGHT = 4


def run(bench: Bench) -> list[Row]:
    variants = [raw_put(bench, MESSAGES * KB, IN_FLIGHT), batch(bench, "bench.batch", KB, IN_FLIGHT)]
    samples = bench.interleaved(f"batch of {MESSAGES} x 1 KB", variants)
    return [
        ratio_row(
            "batch",
            f"batch, {MESSAGES:,} x 1 KB, {IN_FLIGHT} in flight (rate in messages)",
            samples["batch"],
            samples["raw PUT"],
            floor=0.6,
            reference="0.73",
            messages=MESSAGES,
        )
    ]


def batch(bench: Bench, subject: str, size: int, in_flight: int) -> Variant:
    """Each call stores MESSAGES messages without headers of their own."""
    request = Request(
        "POST",
        f"{bench.api.url}/v1/subjects/{subject}/messages/batch",
        {**bench.api.headers, "Content-Type": FRAMES},
        body_file=str(_body_file(bench.stack.folder, size)),
    )

    def plan(count: int) -> Plan:
        return Plan(in_flight=in_flight, count=count, requests=[request], capture=True)

    def check(result: LoadResult) -> None:
        for body in result.captured:
            bench.expect_new(msgspec.json.decode(body)["results"])

    return Variant("batch", plan, check, warm_up=8, most=1000)


def _body_file(folder: Path, size: int) -> Path:
    path = folder / f"batch-{size}.frames"
    if not path.exists():
        meta = msgspec.json.encode({"content_type": DEFAULT_CONTENT_TYPE})  # what the SDK sends
        head = struct.pack(">I", len(meta)) + meta + struct.pack(">I", size)
        path.write_bytes(b"".join(head + os.urandom(size) for _ in range(MESSAGES)))
    return path
