"""Single messages: presigned, with its ticket and receipt, and inline, against raw PUTs of the same size."""

from __future__ import annotations

import statistics

from bench.measure import Bench, Sample, cpu_microseconds, ratio_row
from bench.rows import Floor, Row
from bench.scenarios.loads import inline, presigned_put, raw_put, sink_put, ticket_put_receipt

KB = 1024
SUBJECT = "bench.publish"


def run(bench: Bench) -> list[Row]:
    ten = {flight: _ten_kilobytes(bench, flight) for flight in (1, 16, 64)}
    one = {flight: _one_kilobyte(bench, flight) for flight in (1, 16, 64)}
    return [
        *(row for flight in PRESIGNED for row in _presigned(ten[flight], flight)),
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
        _added(ten[1], 10),
        _added(one[1], 1),
        *_cpu(ten[16]),
    ]


PRESIGNED = {16: (0.75, 0.80, 0.93), 1: (0.55, 0.58, 0.77), 64: (0.70, 0.74, 0.84)}
"""Of raw PUTs: the floor, the reference, and what a do-nothing webhook reached on the machine of both."""
INLINE_10KB = {
    1: (0.55, "0.58"),
    16: (2, "2.7; JetStream, synced 3.3"),
    64: (4, "5.1; JetStream, synced 3.2"),
}
INLINE_1KB = {1: (0.55, "0.58"), 16: (2, "2.5; JetStream, synced 3.3"), 64: (5, "7.2; JetStream, synced 4.3")}
RAW_MS = {10: 1000 / 505, 1: 1000 / 514}
"""What a raw PUT took on the machine of the floors and references, one at a time, by its size in KB."""
CPU = {"host": (300, "250"), "Tarantool": (150, "150"), "MinIO": (None, "1,100, raw 850")}
RAW_CPU = 850
"""What a raw PUT took of MinIO on the machine of the floors and references above."""


def _ten_kilobytes(bench: Bench, flight: int) -> dict[str, list[Sample]]:
    size = 10 * KB
    variants = [
        raw_put(bench, size, flight),
        sink_put(bench, size, flight),
        presigned_put(bench, SUBJECT, size, flight),
        inline(bench, SUBJECT, size, flight),
    ]
    if flight == 16:
        variants.append(ticket_put_receipt(bench, SUBJECT, size, flight))
    return bench.interleaved(f"10 KB, {flight} in flight", variants)


def _one_kilobyte(bench: Bench, flight: int) -> dict[str, list[Sample]]:
    variants = [raw_put(bench, KB, flight), inline(bench, SUBJECT, KB, flight)]
    return bench.interleaved(f"1 KB, {flight} in flight", variants)


def _presigned(samples: dict[str, list[Sample]], flight: int) -> list[Row]:
    """Against raw PUTs, and against those whose event goes to a webhook that does nothing: how much of a raw PUT's rate
    any webhook leaves depends on the machine, on its disk above all."""
    floor, reference, ceiling = PRESIGNED[flight]
    raw, nothing, ours = samples["raw PUT"], samples["do-nothing webhook"], samples["presigned PUT"]
    return [
        ratio_row(
            f"presigned-{flight}",
            f"presigned PUT that commits, 10 KB, {flight} in flight",
            ours,
            raw,
            floor=floor,
            reference=f"{reference:.2f}",
        ),
        ratio_row(
            f"sink-{flight}",
            f"a raw PUT whose event goes to a do-nothing webhook, {flight} in flight",
            nothing,
            raw,
            reference=f"{ceiling:.2f}",
        ),
        ratio_row(
            f"presigned-sink-{flight}",
            f"presigned PUT that commits against that, {flight} in flight",
            ours,
            nothing,
            unit="sink",
            floor=floor / ceiling,
            reference=f"{reference / ceiling:.2f}",
        ),
    ]


def _inline(samples: dict[str, list[Sample]], kilobytes: int, flight: int, floor: float, reference: str) -> Row:
    return ratio_row(
        f"inline-{kilobytes}k-{flight}",
        f"inline publish, {kilobytes} KB, {flight} in flight",
        samples["inline"],
        samples["raw PUT"],
        floor=floor,
        reference=reference,
    )


def _added(samples: dict[str, list[Sample]], kilobytes: int) -> Row:
    """What a message alone waits for us: of a store that is twice as fast, the same is a larger share."""
    floor, reference = INLINE_1KB[1]
    pairs = zip(samples["inline"], samples["raw PUT"], strict=True)
    added = [1000 / ours.result.rate - 1000 / raw.result.rate for ours, raw in pairs]
    return Row(
        key=f"added-{kilobytes}k",
        measure=f"inline publish, {kilobytes} KB, 1 in flight: added to a raw PUT",
        unit="ms",
        value=statistics.median(added),
        floor=Floor(RAW_MS[kilobytes] * (1 / floor - 1), at_most=True),
        reference=f"{RAW_MS[kilobytes] * (1 / float(reference) - 1):.2f}",
        rounds=added,
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
