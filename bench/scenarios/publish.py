"""Single messages: presigned, with its ticket and receipt, and inline, against raw PUTs of the same size."""

from __future__ import annotations

import statistics

from bench.measure import Bench, Sample, cpu_microseconds, ratio_row
from bench.rows import Floor, Row
from bench.scenarios.loads import inline, presigned_put, raw_put, ticket_put_receipt

KB = 1024
SUBJECT = "bench.publish"


def run(bench: Bench) -> list[Row]:
    ten = {flight: _ten_kilobytes(bench, flight) for flight in (1, 16, 64)}
    one = {flight: _one_kilobyte(bench, flight) for flight in (1, 16, 64)}
    return [
        *(_presigned(ten[flight], flight, *floor) for flight, floor in PRESIGNED.items()),
        ratio_row(
            "ticketed-16",
            "ticket + PUT + receipt, all timed, 10 KB, 16 in flight",
            ten[16]["ticket, PUT, receipt"],
            ten[16]["raw PUT"],
            floor=0.50,
            reference="the Go servers of the specification 0.71, Kafka claim check 0.74",
        ),
        *(_inline(ten[flight], 10, flight, *floor) for flight, floor in INLINE_10KB.items()),
        *(_inline(one[flight], 1, flight, *floor) for flight, floor in INLINE_1KB.items()),
        *_cpu(ten[16]),
    ]


PRESIGNED = {16: (0.75, "0.80 (a do-nothing webhook: 0.93)"), 1: (0.55, "0.58"), 64: (0.70, "0.74")}
INLINE_10KB = {
    1: (0.55, "0.58"),
    16: (2, "2.7; JetStream, synced 3.3"),
    64: (4, "5.1; JetStream, synced 3.2"),
}
INLINE_1KB = {1: (0.55, "0.58"), 16: (2, "2.5; JetStream, synced 3.3"), 64: (5, "7.2; JetStream, synced 4.3")}
CPU = {"host": (300, "250"), "Tarantool": (150, "150"), "MinIO": (None, "1,100, raw 850")}
RAW_CPU = 850
"""What a raw PUT took of MinIO on the machine of the floors and references above."""


def _ten_kilobytes(bench: Bench, flight: int) -> dict[str, list[Sample]]:
    size = 10 * KB
    variants = [
        raw_put(bench, size, flight),
        presigned_put(bench, SUBJECT, size, flight),
        inline(bench, SUBJECT, size, flight),
    ]
    if flight == 16:
        variants.append(ticket_put_receipt(bench, SUBJECT, size, flight))
    return bench.interleaved(f"10 KB, {flight} in flight", variants)


def _one_kilobyte(bench: Bench, flight: int) -> dict[str, list[Sample]]:
    variants = [raw_put(bench, KB, flight), inline(bench, SUBJECT, KB, flight)]
    return bench.interleaved(f"1 KB, {flight} in flight", variants)


def _presigned(samples: dict[str, list[Sample]], flight: int, floor: float, reference: str) -> Row:
    return ratio_row(
        f"presigned-{flight}",
        f"presigned PUT that commits, 10 KB, {flight} in flight",
        samples["presigned PUT"],
        samples["raw PUT"],
        floor=floor,
        reference=reference,
    )


def _inline(samples: dict[str, list[Sample]], kilobytes: int, flight: int, floor: float, reference: str) -> Row:
    return ratio_row(
        f"inline-{kilobytes}k-{flight}",
        f"inline publish, {kilobytes} KB, {flight} in flight",
        samples["inline"],
        samples["raw PUT"],
        floor=floor,
        reference=reference,
    )


def _cpu(samples: dict[str, list[Sample]]) -> list[Row]:
    """The timed part alone: event and commit. Tickets were taken before, receipts asked for after."""
    rows = []
    raw_puts = cpu_microseconds(samples["raw PUT"], "MinIO")
    for part, (floor, reference) in CPU.items():
        costs = cpu_microseconds(samples["presigned PUT"], part)
        rows.append(
            Row(
                key=f"cpu-{part.lower()}",
                measure=f"CPU a presigned publish: {part}",
                unit="us",
                value=statistics.median(costs),
                floor=Floor(floor, at_most=True) if floor else None,
                reference=reference,
                rounds=costs,
                note=f"a raw PUT {statistics.median(raw_puts):,.0f} us" if part == "MinIO" else "",
            )
        )
        if floor:
            rows.append(_cpu_share(part, costs, raw_puts, floor, reference))
    return rows


def _cpu_share(part: str, costs: list[float], raw_puts: list[float], floor: float, reference: str) -> Row:
    """The same in raw PUTs of this machine: microseconds of a slower one say nothing about ours."""
    shares = [cost / raw for cost, raw in zip(costs, raw_puts, strict=True)]
    return Row(
        key=f"cpu-{part.lower()}-share",
        measure=f"the same, {part}, against the CPU of a raw PUT in MinIO (floor: {floor} of {RAW_CPU} us)",
        unit="raw",
        value=statistics.median(shares),
        floor=Floor(floor / RAW_CPU, at_most=True),
        reference=f"{float(reference) / RAW_CPU:.2f}",
        rounds=shares,
    )
