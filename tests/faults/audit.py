"""What must hold after any fault: order, no loss, no doubles, nothing left over."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.load import name_of
from tests.live import Live, eventually

OWN = ("_mts/ceiling/", "_mts/journal/", "_mts/backups/", "_mts/deletions/", "_mts/fsck/")


@dataclass
class Faults:
    """What a stream must not have, each in words."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.reordered]


def find_faults(
    messages: Sequence[Any], payloads: Mapping[int, bytes], acknowledged: Mapping[str, int], *, deleted: bool = False
) -> Faults:
    """Every acknowledged message must be there under its sequence, once, with its payload; each partition without a
    hole unless some were deleted, and what one producer sent one after the other in its order. What has had its time
    is missing at the head."""
    faults = Faults()
    sequences = [int(message["sequence"]) for message in messages]
    if sequences != sorted(set(sequences)):
        faults.reordered.append("a sequence came twice or out of order")
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message["partition"], []).append(int(message["offset"]))
    for partition, given in offsets.items():
        if given != sorted(set(given)) or (not deleted and given[-1] - given[0] != len(given) - 1):
            faults.reordered.append(f"partition {partition} has a hole, or offsets out of order")
    head = min(sequences, default=0)
    faults.lost = [
        f"{name} is not at {sequence} with its payload"
        for name, sequence in acknowledged.items()
        if sequence >= head and name_of(payloads.get(sequence)) != name
    ]
    counted = Counter(payloads.values())
    faults.doubled = [f"{payload[:40]!r} is stored {count} times" for payload, count in counted.items() if count > 1]
    latest: dict[str, int] = {}
    for sequence in sequences:
        producer, _, number = (name_of(payloads.get(sequence)) or "").rpartition("-")
        if not number.isdigit():
            continue
        if int(number) < latest.get(producer, 0):
            faults.reordered.append(f"{producer}-{number} stands behind {latest[producer]}")
        latest[producer] = int(number)
    return faults


def check_stream(live: Live, subject: str, acknowledged: Mapping[str, int]) -> Any:
    """Of a subject from which nothing is missing at the head. Returns the messages."""
    messages = live.messages(subject, inline="true")
    payloads = {int(message["sequence"]): base64.b64decode(message["data"]) for message in messages}
    faults = find_faults(messages, payloads, acknowledged).all()
    assert not faults, faults[:5]
    partitions = {message["partition"] for message in messages}
    assert partitions == {message["partition"] for message in messages if message["offset"] == 0}, "its head is missing"
    assert set(acknowledged.values()) <= set(payloads), "acknowledged and lost"
    for message in messages[:: max(1, len(messages) // 20)]:
        assert live.payload(message) == payloads[int(message["sequence"])]
    return messages


def objects_of_rows(live: Live) -> set[str]:
    """Every object that a message of any subject lives in."""
    found: set[str] = set()
    for entry in live.api("GET", "/v1/subjects?limit=1000").json["subjects"]:
        start: Any = 1
        while True:
            path = f"/v1/subjects/{entry['subject']}/messages?view=extents&limit=1000&start={start}"
            page = live.api("GET", path).json
            found |= {extent["object_name"] for extent in page["extents"]}
            if page["next_sequence"] == start:
                break
            start = page["next_sequence"]
    return found


def objects_in_bucket(live: Live) -> set[str]:
    """Payloads; what the host keeps there for a restore is not among them."""
    return {name for name in names_in_bucket(live) if not name.startswith(OWN)}


def names_in_bucket(live: Live, prefix: str = "") -> list[str]:
    pages = live.minio.s3().get_paginator("list_objects_v2").paginate(Bucket=live.minio.bucket, Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", ())]


def multiparts_in_bucket(live: Live, name: str) -> list[Any]:
    """Unfinished multiparts of a key; MinIO lists them by the exact key only."""
    listed = live.minio.s3().list_multipart_uploads(Bucket=live.minio.bucket, Prefix=name)
    return list(listed.get("Uploads", ()))


def status(live: Live) -> Any:
    return live.api("GET", "/v1/status").json


def settle(live: Live, within: float = 60.0) -> None:
    """Reconcile until no upload and no trash is left, and the bucket holds what rows point at, nothing else."""

    def nothing_left() -> bool:
        live.reconcile()
        figures = status(live)
        return not figures["uploads"] and not figures["trash"] and objects_in_bucket(live) == objects_of_rows(live)

    eventually(nothing_left, within)
