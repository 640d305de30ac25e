"""The shapes on the wire. Requests refuse unknown fields; OpenAPI is generated from these.

Sequences, seqnos and offsets are numbers up to 2**53 and strings above; both are accepted.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from minitoolstream.domain.message import Message as Message  # noqa: PLC0414 - part of the wire shapes
from minitoolstream.domain.retention import Retention

Headers = dict[str, str]


class UploadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One payload to announce."""

    size: int
    content_type: str = "application/octet-stream"
    sha256: str | None = None
    headers: Headers = {}
    producer_id: str | None = None
    seqno: int | str | None = None
    epoch: int | None = None
    sizes: list[int] | None = None
    group: str | None = None
    codec: str | None = None
    transaction_id: str | None = None


class UploadsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 1,000 payloads to announce at once."""

    uploads: list[UploadRequest]


class PartUrl(msgspec.Struct, omit_defaults=True):
    number: int
    size: int
    url: str
    headers: Headers = {}


class StoredPartAnswer(msgspec.Struct):
    number: int
    size: int
    etag: str


class Parts(msgspec.Struct, omit_defaults=True):
    """Part URLs of a multipart upload, a page at a time: `next` is the number to ask from, if any is left."""

    part_size: int
    count: int
    urls: list[PartUrl]
    arrived: list[StoredPartAnswer] = []
    next: int | None = None
    expires_at: int | None = None


class Ticket(msgspec.Struct, omit_defaults=True):
    """How to put the payload into the object store: one request, or `parts`."""

    upload_id: str
    object_name: str
    method: str
    expires_at: int
    url: str | None = None
    headers: Headers = {}
    parts: Parts | None = None


class ReceiptAnswer(msgspec.Struct, omit_defaults=True):
    """What became of an upload."""

    state: str
    upload_id: str | None = None
    sequence: int | str | None = None
    partition: int | None = None
    offset: int | str | None = None
    duplicate: bool = False
    waits_for: str | None = None
    reason: str | None = None
    transaction_id: str | None = None


# A plain union: msgspec can neither decode nor describe one of two untagged structs.
TicketOrReceipt = Annotated[
    Any,
    Meta(
        extra_json_schema={
            "anyOf": [{"$ref": "#/components/schemas/Ticket"}, {"$ref": "#/components/schemas/ReceiptAnswer"}]
        }
    ),
]


class Tickets(msgspec.Struct):
    """One for each upload asked for, in order; a receipt where the message is already stored."""

    uploads: list[TicketOrReceipt]


class PartToSign(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    md5: str | None = None


class PartsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which parts to sign: `parts` by number (with the MD5 the store shall check), or the missing ones
    from `start` on."""

    parts: list[PartToSign] | None = None
    start: int = 1


class InlineRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A small message as JSON. `data` is text, or base64 when `encoding` says so."""

    data: str
    encoding: str = "utf-8"
    content_type: str | None = None
    headers: Headers = {}
    producer_id: str | None = None
    seqno: int | str | None = None
    epoch: int | None = None
    group: str | None = None
    codec: str | None = None
    transaction_id: str | None = None


class BatchResult(ReceiptAnswer, omit_defaults=True):
    """A receipt, or what was wrong with this item alone."""

    error: dict[str, object] | None = None


class BatchAnswer(msgspec.Struct):
    results: list[BatchResult]
    committed: int
    failed: int


class Page(msgspec.Struct):
    messages: list[Message]
    next_sequence: int | str
    latest_sequence: int | str


class OwnMetadata(msgspec.Struct, omit_defaults=True):
    """Where a message of an extent differs from what the extent shares."""

    index: int
    headers: Headers | None = None
    content_type: str | None = None


class Extent(msgspec.Struct, omit_defaults=True):
    """`count` consecutive messages in one byte range. With `framed`, each payload of `sizes` has 8 bytes before
    it: its length and its CRC-32, both big endian. With `payload_missing` there is no URL."""

    sequence: int | str
    subject: str
    partition: int
    offset: int | str
    count: int
    create_at: int
    headers: Headers
    size: int
    sizes: list[int]
    object_name: str
    content_type: str
    url: str | None = None
    framed: bool = False
    unverified: bool = False
    own: list[OwnMetadata] = []
    codec: str | None = None
    sha256: str | None = None
    range: str | None = None
    payload_missing: bool = False


class ExtentPage(msgspec.Struct):
    extents: list[Extent]
    next_sequence: int | str
    latest_sequence: int | str


class Latest(msgspec.Struct):
    """`now`: unix seconds by the clock that gives messages their `create_at`."""

    subject: str
    latest_sequence: int | str
    now: int


class ProducerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`headers` stand beneath those of each message that carries the session's epoch."""

    producer_id: str
    headers: Headers = {}


class ProducerSession(msgspec.Struct):
    """A new session: send `epoch` with every publish; older sessions are fenced from now on. `last_seqno` is null when
    nothing is stored."""

    producer_id: str
    epoch: int
    last_seqno: int | str | None


class ErrorBody(msgspec.Struct):
    code: str
    message: str
    details: dict[str, object]


class Error(msgspec.Struct):
    error: ErrorBody


class IpfsErrorBody(msgspec.Struct):
    reason: str
    details: str


class IpfsError(msgspec.Struct):
    """As the IPFS Pinning Service API has it."""

    error: IpfsErrorBody


class SubjectInfo(msgspec.Struct):
    subject: str
    partitions: int
    created_at: int
    messages: int
    bytes: int


class Subjects(msgspec.Struct, omit_defaults=True):
    """In the order of their names; with `next`, there are more `after` that one."""

    subjects: list[SubjectInfo]
    next: str | None = None


class RejectedEvent(msgspec.Struct):
    at: int
    object_name: str
    reason: str


class Journal(msgspec.Struct):
    """How far the journal in the bucket is: `behind` sequences are not in it yet, the first of them for `seconds`. `at`
    and `checkpoint_at` are milliseconds of the last round and of the last checkpoint; 0 for none."""

    number: int
    upto: int | str
    at: int
    checkpoint_at: int
    behind: int
    seconds: int
    waiting: bool


class JournalWritten(msgspec.Struct):
    """What one round wrote; `complete` unless another host was writing."""

    segments: int
    rows: int
    removed: int
    complete: bool
    journal: Journal


class Status(msgspec.Struct):
    """Figures of the metadata store; `rejected_events` are the newest that did not fit, `missing` rows whose payload is
    missing. `transactions` are those that are open or ended within a day, `transaction_receipts` what is kept of the
    committed.
    `retention` tells what expires when and who holds back what, `journal` how far the journal is.
    `recovery` is told while the metadata store and the bucket are not in step: needed, replaying or pending."""

    version: int
    time: int
    watermark: int | str
    subjects: int
    rows: int
    uploads: int
    trash: int
    missing: int
    rejected_events: list[RejectedEvent]
    arena_used: int
    arena_size: int
    quota_size: int
    transactions: int
    transaction_receipts: int
    retention: Retention
    journal: Journal
    next_due_at: int | None = None
    recovery: str | None = None


class Reconciled(msgspec.Struct):
    """What one run of the reconciler did; `ticked`: for durables, transactions and deleted subjects."""

    looked: int
    committed: int
    expired: int
    postponed: int
    removed: int
    packs_settled: int
    packs_discarded: int
    objects_deleted: int
    keys_forgotten: int
    ticked: int
    deletions_finished: int
    quarantined: int
