"""A message as a line of an event file, and which shard it belongs to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from minitoolstream.client import Message
from minitoolstream.domain.errors import MtsError, bad_request

DEFAULT_KEY = "header:key"
_KEY_KINDS = ("header", "field")


class Event(msgspec.Struct, omit_defaults=True):
    """`text` holds a payload that is UTF-8, `base64` any other."""

    sequence: int
    subject: str
    partition: int
    offset: int
    create_at: int
    content_type: str
    headers: dict[str, str]
    text: str | None = None
    base64: str | None = None

    def payload(self) -> bytes:
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


def event_of(message: Message) -> Event:
    if message.data is None:
        raise MtsError("payload_missing", f"the payload of message {message.sequence} is missing")
    event = Event(
        message.sequence,
        message.subject,
        message.partition,
        message.offset,
        message.create_at,
        message.content_type,
        dict(message.headers),
    )
    try:
        event.text = message.data.decode()
    except UnicodeDecodeError:
        event.base64 = base64.b64encode(message.data).decode()
    return event


def line_of(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def events_in(lines: Iterable[bytes], name: str) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        try:
            yield msgspec.json.decode(line, type=Event)
        except msgspec.DecodeError as error:
            raise MtsError("bad_event_file", f"line {number} of {name} is no event: {error}") from None


def check_key(key: str) -> str:
    kind, _, name = key.partition(":")
    if kind not in _KEY_KINDS or not name:
        raise bad_request(f"{key!r} is no key: write header:NAME or field:NAME of a JSON payload", field="key")
    return key


def key_of(event: Event, key: str) -> str:
    """A header's value, or a field's of a JSON payload; the sequence where there is none."""
    kind, _, name = key.partition(":")
    value = event.headers.get(name) if kind == "header" else _field(event, name)
    return str(event.sequence) if value is None else value


def _field(event: Event, name: str) -> str | None:
    try:
        found = msgspec.json.decode(event.payload())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    value = found.get(name) if isinstance(found, Mapping) else None
    if value is None or isinstance(value, Mapping | list):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def shard_of(key: str, shards: Sequence[int]) -> int:
    """Stable: the same key goes to the same of these shards, on every machine and in every version."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return shards[int.from_bytes(digest[:8], "big") % len(shards)]
