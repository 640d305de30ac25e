"""1 GiB in parts: ticket, parts, complete, against the same parts put by the store's own calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.api import RawStore
from bench.errors import BenchError
from bench.generator import LoadResult, Plan, Request
from bench.measure import Bench
from bench.rows import Floor, Row, median_latency
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.stack import bucket as buckets

MIB = 2**20
PART = 16 * MIB
IN_FLIGHT = 4
SUBJECT = "bench.multipart"


def run(bench: Bench) -> list[Row]:
    size = (128 if bench.quick else 1024) * MIB
    ways: dict[str, Callable[[Bench, int], tuple[float, LoadResult]]] = {"raw": _raw, "ours": _ours}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    parts: dict[str, list[LoadResult]] = {way: [] for way in ways}
    for number in range(bench.rounds):
        for way in sorted(ways, reverse=bool(number % 2)):
            took, result = ways[way](bench, size)
            seconds[way].append(took)
            parts[way].append(result)
        speeds = ", ".join(f"{way} {size / MIB / took[-1]:.0f} MiB/s" for way, took in seconds.items())
        bench.say(f"{size // MIB} MiB in parts: round {number + 1} of {bench.rounds}: {speeds}")
    ratios = [raw / ours for raw, ours in zip(seconds["raw"], seconds["ours"], strict=True)]
    return [
        Row(
            key="multipart",
            measure=f"{size // MIB} MiB in parts of 16 MiB, {IN_FLIGHT} at a time (latency of a part)",
            unit="raw",
            value=statistics.median(ratios),
            floor=Floor(0.9),
            reference="1.0",
            rounds=ratios,
            latency_ms=median_latency([one.latency_ms for one in parts["ours"]]),
            base_latency_ms=median_latency([one.latency_ms for one in parts["raw"]]),
            note=f"{size / MIB / statistics.median(seconds['ours']):.0f} MiB/s",
        )
    ]


def _ours(bench: Bench, size: int) -> tuple[float, LoadResult]:
    begun = time.perf_counter()
    announced = {"size": size, "content_type": DEFAULT_CONTENT_TYPE}
    ticket = bench.api.call("POST", f"/v1/subjects/{SUBJECT}/uploads", announced)
    ticketed = time.perf_counter() - begun
    urls = ticket["parts"]["urls"]
    if len(urls) != size // PART:
        raise BenchError(f"{len(urls)} part URLs for {size} bytes")
    puts = [Request("PUT", part["url"], part.get("headers", {}), part["size"]) for part in urls]
    result = _put_parts(bench, puts)
    begun = time.perf_counter()
    receipt = bench.api.call("POST", f"/v1/uploads/{ticket['upload_id']}/complete")
    completed = time.perf_counter() - begun
    bench.expect_new([receipt])
    # The disk would not hold all rounds; nobody reads these messages again.
    bench.raw.client.remove_object(bench.stack.minio.bucket, ticket["object_name"])
    return ticketed + result.seconds + completed, result


def _raw(bench: Bench, size: int) -> tuple[float, LoadResult]:
    store = bench.stack.minio
    s3: Any = buckets.client("s3", store.endpoint, store.root, store.region)
    where = {"Bucket": RawStore.BUCKET, "Key": "in-parts"}
    begun = time.perf_counter()
    where["UploadId"] = s3.create_multipart_upload(**where)["UploadId"]
    created = time.perf_counter() - begun
    puts = []
    for number in range(1, size // PART + 1):
        url = s3.generate_presigned_url("upload_part", Params={**where, "PartNumber": number}, ExpiresIn=3600)
        puts.append(Request("PUT", url, {}, PART))
    result = _put_parts(bench, puts)
    arrived = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in s3.list_parts(**where)["Parts"]]
    begun = time.perf_counter()
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": arrived})
    completed = time.perf_counter() - begun
    bench.raw.client.remove_object(RawStore.BUCKET, where["Key"])
    return created + result.seconds + completed, result


def _put_parts(bench: Bench, puts: list[Request]) -> LoadResult:
    result = bench.generator.run(Plan(in_flight=IN_FLIGHT, count=len(puts), requests=puts, seconds=600))
    result.must_have_succeeded(len(puts))
    return result
