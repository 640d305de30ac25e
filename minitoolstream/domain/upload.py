"""Uploads: what a producer announced, what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec


class State(StrEnum):
    """Where an upload stands: `open` and `stored` may still change, the others are final."""

    OPEN = "open"
    STORED = "stored"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    REJECTED = "rejected"

    @property
    def final(self) -> bool:
        return self not in (State.OPEN, State.STORED)


@dataclass(frozen=True, slots=True)
class UploadSpec:
    """One payload a producer announces. Checked by `domain.checks` before it gets here. In a transaction, an
    announcement sent again with the same `key` is the same upload."""

    size: int
    content_type: str
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    producer_id: str | None = None
    seqno: int | None = None
    epoch: int | None = None
    sizes: tuple[int, ...] | None = None
    part_size: int | None = None
    group: str | None = None
    codec: str | None = None
    transaction_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload as the metadata store knows it."""

    id: str
    subject: str
    object_name: str
    state: State
    size: int
    content_type: str
    sha256: str | None
    producer_id: str | None
    seqno: int | None
    created_at: int
    expires_at: int
    multipart_id: str | None = None
    part_size: int | None = None
    parts_seen: int = 0
    byte_from: int | None = None


class Receipt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of an upload. `sequence` is there exactly when it is committed; one that is stored waits for an
    earlier upload of its producer, or for its transaction."""

    state: State
    upload_id: str | None = None
    sequence: int | None = None
    partition: int | None = None
    offset: int | None = None
    duplicate: bool = False
    waits_for: str | None = None
    reason: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A payload that is said to be in the store: what a commit compares with the ticket. `seen`: the store itself
    said so, not an event."""

    upload_id: str
    object_name: str
    size: int
    seen: bool = True
