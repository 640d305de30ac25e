"""Every form in which the bucket says "an object was created", read into one type.

MinIO's webhook, S3's event as a Lambda gets it, the same inside SQS, inside SNS or both, EventBridge's form of it, and
the test event S3 sends when a notification is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

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


MALFORMED = "malformed_event"


@dataclass(slots=True)
class Delivery:
    """The records that came together; `message_id` is SQS's, so that a failed one alone comes again, and `body` what
    the message held."""

    records: list[ObjectCreated | Rejected] = field(default_factory=list)
    message_id: str | None = None
    body: str = field(default="", compare=False)

    @property
    def is_poison(self) -> bool:
        """Whether nothing in it can be read: no try will do better."""
        return bool(self.records) and all(
            isinstance(record, Rejected) and record.reason == MALFORMED for record in self.records
        )


def read_event(event: Any) -> list[Delivery]:
    """Never raises: what cannot be read comes back as `Rejected`, with a reason for the operator."""
    if not isinstance(event, dict):
        return [Delivery([Rejected("", MALFORMED)])]
    if event.get("Event") == "s3:TestEvent":
        return []
    records = event.get("Records")
    if isinstance(records, list) and records and all(_comes_by(record, "eventSource", "aws:sqs") for record in records):
        return [_from_sqs(record) for record in records]
    return [Delivery(list(_from_one(event)))]


def _from_one(event: Any) -> Iterator[ObjectCreated | Rejected]:
    """The records of an event in any form but that of SQS, which can hold every other."""
    records = event.get("Records") if isinstance(event, dict) else None
    if isinstance(records, list) and records and all(_comes_by(one, "EventSource", "aws:sns") for one in records):
        for record in records:
            yield from _from_sns(record.get("Sns"))
    elif isinstance(records, list):
        yield from _from_records(records)
    elif isinstance(event, dict) and event.get("Type") == "Notification":
        yield from _from_sns(event)
    elif isinstance(event, dict) and "detail-type" in event:
        yield _from_event_bridge(event)
    else:
        yield Rejected("", MALFORMED)


def _comes_by(record: Any, name: str, source: str) -> bool:
    return isinstance(record, Mapping) and record.get(name) == source


def _from_sqs(record: Mapping[str, Any]) -> Delivery:
    body = str(record.get("body", ""))
    return Delivery(list(_from_text(body)), str(record.get("messageId", "")), body)


def _from_sns(notification: Any) -> Iterator[ObjectCreated | Rejected]:
    text = notification.get("Message") if isinstance(notification, Mapping) else None
    yield from _from_text(text) if isinstance(text, str) else [Rejected("", MALFORMED)]


def _from_text(text: str) -> Iterator[ObjectCreated | Rejected]:
    try:
        event = msgspec.json.decode(text)
        deliveries = read_event(event)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        yield Rejected("", MALFORMED)
    else:
        for delivery in deliveries:
            yield from delivery.records


def _from_records(records: list[Any]) -> Iterator[ObjectCreated | Rejected]:
    for record in records:
        try:
            yield _from_record(record)
        except (KeyError, TypeError, ValueError, AttributeError):
            yield Rejected("", MALFORMED)


def _from_record(record: Mapping[str, Any]) -> ObjectCreated | Rejected:
    item = record["s3"]["object"]
    name = unquote_to_bytes(item["key"].replace("+", " ")).decode()
    event = str(record.get("eventName", "")).removeprefix("s3:")
    return _created(record["s3"]["bucket"], name, item, is_creation=event.startswith("ObjectCreated:"))


def _from_event_bridge(event: Mapping[str, Any]) -> ObjectCreated | Rejected:
    """Its keys are written as they are, unlike those of all other forms."""
    try:
        detail = event["detail"]
        name = str(detail["object"]["key"])
        is_creation = event["detail-type"] == "Object Created"
        return _created(detail["bucket"], name, detail["object"], is_creation=is_creation)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Rejected("", MALFORMED)


def _created(
    bucket: Mapping[str, Any], name: str, item: Mapping[str, Any], *, is_creation: bool
) -> ObjectCreated | Rejected:
    name.encode()  # half of a surrogate pair is a string, but no name
    if not is_creation:
        return Rejected(name, "not_a_creation")
    size = item.get("size", 0)
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_PAYLOAD_BYTES:
        return Rejected(name, MALFORMED)
    return ObjectCreated(str(bucket["name"]), name, size)
