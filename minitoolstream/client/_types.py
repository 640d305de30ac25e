"""What the SDK takes and gives: plain frozen values, sequences as whole numbers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from minitoolstream.api import schema
from minitoolstream.domain.checks import check_text
from minitoolstream.domain.cid import cid_of_sha256
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.upload import Receipt, State

Start = int | Literal["first", "last", "new"] | datetime
"""Where to read from: a sequence (inclusive), one of these words (`new` is behind the last message), or a time."""

TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a batch.

    Example: `Item(b"...", headers={"kind": "order"}, content_type="application/json")`
    """

    data: bytes | str
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    producer_id: str | None = None
    seqno: int | None = None
    epoch: int | None = None
    group: str | None = None
    codec: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item of a batch: a `receipt`, or the `error` that concerns it alone.

    Example: `failed = [r.error for r in client.publish_batch("orders", items) if not r.ok]`
    """

    receipt: Receipt | None = None
    error: MtsError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def unwrap(self) -> Receipt:
        """The receipt; raises the error when there is none."""
        if self.receipt is None:
            raise self.error or MtsError("internal", "a result without receipt and error")
        return self.receipt


@dataclass(frozen=True, slots=True)
class Message:
    """A message's place in the order, its metadata, and where its payload is.

    `data` is there when the payload came along (`fetch(inline=True)`, `read`); else `download` gets it. `size` and
    `sha256` are of what is stored: compressed when there is a `codec`, which `data`, `payload` and `download` undo.
    `unverified`: written by the specification's own Lua calls; nobody looked whether its payload exists, its
    `size` is 0 whatever the payload's is, and `data` never comes along. `payload_missing`: the payload was lost; asking
    for it is an error of that name. `fallback_url`: where the payload is when `url`, a copy nearer to here, fails.
    `cid`: what the content catalog calls the payload, where its `sha256` is known.

    Example: `for m in client.fetch("orders").messages: print(m.sequence, m.headers, m.size)`
    """

    sequence: int
    subject: str
    partition: int
    offset: int
    create_at: int
    headers: Mapping[str, str]
    size: int
    content_type: str
    object_name: str
    codec: str | None = None
    sha256: str | None = None
    url: str | None = None
    range: str | None = None
    data: bytes | None = None
    unverified: bool = False
    payload_missing: bool = False
    fallback_url: str | None = None
    fallback_range: str | None = None

    @property
    def cid(self) -> str | None:
        return cid_of_sha256(self.sha256).text if self.sha256 else None


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, where to go on (`next_sequence`), and the subject's last one (`latest_sequence`).

    Example: `page = client.fetch("orders", start=page.next_sequence)`
    """

    messages: tuple[Message, ...]
    next_sequence: int
    latest_sequence: int


@dataclass(frozen=True, slots=True)
class ProducerSession:
    """A session of a named producer: publish with its `epoch`, go on behind `last_seqno`, which is 0 at the beginning.

    Example: `s = client.start_producer("orders", "till-7"); seqno = s.last_seqno + 1`
    """

    producer_id: str
    epoch: int
    last_seqno: int


def start_word(start: Start) -> int | str:
    """As it stands in a query."""
    return f"time:{moment_of(start)}" if isinstance(start, datetime) else start


def moment_of(start: datetime) -> str:
    if start.tzinfo is None:
        raise bad_request("a time needs a time zone: datetime.now(UTC), not datetime.now()", field="start")
    return start.isoformat()


def to_bytes(data: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(data, str):
        return check_text(data, "data").encode()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise bad_request(f"a payload is bytes or str, not {type(data).__name__}", field="data")
    return bytes(data)


def content_type_for(data: object, given: str | None) -> str:
    if given is not None:
        return given
    return TEXT_CONTENT_TYPE if isinstance(data, str) else DEFAULT_CONTENT_TYPE


def receipt_of(answer: schema.ReceiptAnswer) -> Receipt:
    return Receipt(
        upload_id=answer.upload_id,
        state=State(answer.state),
        sequence=_number(answer.sequence),
        partition=answer.partition,
        offset=_number(answer.offset),
        duplicate=answer.duplicate,
        waits_for=answer.waits_for,
        reason=answer.reason,
    )


def message_of(answer: schema.Message) -> Message:
    return Message(
        sequence=int(answer.sequence),
        subject=answer.subject,
        partition=answer.partition,
        offset=int(answer.offset),
        create_at=answer.create_at,
        headers=answer.headers,
        size=answer.size,
        content_type=answer.content_type,
        object_name=answer.object_name,
        codec=answer.codec,
        sha256=answer.sha256,
        url=answer.url,
        fallback_url=answer.fallback_url,
        fallback_range=answer.fallback_range,
        range=answer.range,
        data=_data(answer),
        unverified=answer.unverified,
        payload_missing=answer.payload_missing,
    )


def page_of(answer: schema.Page) -> Page:
    return Page(
        tuple(message_of(message) for message in answer.messages),
        int(answer.next_sequence),
        int(answer.latest_sequence),
    )


def _data(answer: schema.Message) -> bytes | None:
    if answer.data is None:
        return None
    return base64.b64decode(answer.data) if answer.encoding == "base64" else answer.data.encode()


def _number(value: int | str | None) -> int | None:
    return None if value is None else int(value)
