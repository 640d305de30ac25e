"""Every form in which the bucket says "an object was created", read into one type.

MinIO's webhook, S3's event as a Lambda gets it, the same inside SQS, and the test event S3 sends when a
notification is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from minitoolstream.domain.limits import MAX_PAYLOAD_BYTES


@dataclass(frozen=True, slots=True)
class ObjectCreated:
    bucket: str
    object_name: str
    size: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that says nothing we can act on; `object_name` as far as it could be read."""

    object_name: str
    reason: str


@dataclass(slots=True)
class Delivery:
    """The records that came together; `message_id` is SQS's, so that a failed one alone comes again."""

    records: list[ObjectCreated | Rejected] = field(default_factory=list)
    message_id: str | None = None


def read_event(event: Any) -> list[Delivery]:
    """Never raises: what cannot be read comes back as `Rejected`, with a reason for the operator."""
    if not isinstance(event, dict):
        return [Delivery([Rejected("", "malformed_event")])]
    records = event.get("Records")
    if event.get("Event") == "s3:TestEvent":
        return []
    if not isinstance(records, list):
        return [Delivery([Rejected("", "malformed_event")])]
    if records and all(isinstance(record, Mapping) and record.get("eventSource") == "aws:sqs" for record in records):
        return [_from_sqs(record) for record in records]
    return [Delivery(list(_from_records(records)))]


def _from_sqs(record: Mapping[str, Any]) -> Delivery:
    message_id = str(record.get("messageId", ""))
    try:
        body = msgspec.json.decode(str(record.get("body", "")))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Delivery([Rejected("", "malformed_event")], message_id)
    inner = [item for delivery in read_event(body) for item in delivery.records]
    return Delivery(inner, message_id)


def _from_records(records: list[Any]) -> Iterator[ObjectCreated | Rejected]:
    for record in records:
        try:
            yield _from_record(record)
        except (KeyError, TypeError, ValueError, AttributeError):
            yield Rejected("", "malformed_event")


def _from_record(record: Mapping[str, Any]) -> ObjectCreated | Rejected:
    item = record["s3"]["object"]
    name = unquote_plus(item["key"], errors="strict")
    name.encode()  # half of a surrogate pair is a string, but no name
    event = str(record.get("eventName", "")).removeprefix("s3:")
    if not event.startswith("ObjectCreated:"):
        return Rejected(name, "not_a_creation")
    size = item.get("size", 0)
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_PAYLOAD_BYTES:
        return Rejected(name, "malformed_event")
    return ObjectCreated(str(record["s3"]["bucket"]["name"]), name, size)
