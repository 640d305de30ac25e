"""What must hold after any fault: order, no loss, no doubles, nothing left over."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.faults.load import payload_of
from tests.live import Live, eventually

OWN = ("_mts/ceiling/", "_mts/journal/", "_mts/backups/", "_mts/deletions/", "_mts/fsck/")


def check_stream(live: Live, subject: str, acknowledged: Mapping[str, int]) -> Any:
    """Every acknowledged message is there under its sequence, once, with its payload; offsets have no hole.
    Returns the messages."""
    messages = live.messages(subject, inline="true")
    sequences = [int(message["sequence"]) for message in messages]
    assert sequences == sorted(set(sequences)), "a sequence came twice or out of order"
    assert [message["offset"] for message in messages] == list(range(len(messages))), "an offset is missing"
    payloads = {int(message["sequence"]): base64.b64decode(message["data"]) for message in messages}
    lost = [name for name, sequence in acknowledged.items() if payloads.get(sequence) != payload_of(name)]
    assert not lost, f"acknowledged and lost, or with another payload: {lost[:5]}"
    doubled = [payload for payload, count in Counter(payloads.values()).items() if count > 1]
    assert not doubled, f"stored more than once: {doubled[:5]}"
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
