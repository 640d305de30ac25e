"""The rows of the metadata store in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from minitoolstream.adapters.memory.producers import Producer
from minitoolstream.config import Settings
from minitoolstream.domain.upload import State, Upload

NEVER = 2**53
MOVED = "rewritten"
_PACK = re.compile(r"_mts/packs/([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")


@dataclass(frozen=True, slots=True)
class Times:
    """Lives and pauses, in seconds."""

    life: int
    producer_life: int
    max_life: int
    first_look: int
    put_grace: int
    pack_grace: int

    @classmethod
    def of(cls, settings: Settings) -> Times:
        return cls(
            life=int(settings["uploads.ticket_life"]),
            producer_life=int(settings["uploads.producer_ticket_life"]),
            max_life=int(settings["uploads.max_life"]),
            first_look=int(settings["uploads.first_look"]),
            put_grace=int(settings["uploads.put_grace"]),
            pack_grace=int(settings["packs.grace"]),
        )


@dataclass(slots=True)
class UploadRow:
    id: str
    subject: str
    object_name: str
    size: int
    content_type: str
    created_at: int
    expires_at: int
    due_at: int
    state: State = State.OPEN
    sha256: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    owner: Producer | None = None
    seqno: int | None = None
    epoch: int | None = None
    sizes: list[int] | None = None
    group: str | None = None
    codec: str | None = None
    looks: int = 0
    multipart_id: str | None = None
    part_size: int | None = None
    parts_seen: int = 0
    byte_from: int | None = None
    sequence: int | None = None
    reason: str | None = None

    def described(self) -> Upload:
        return Upload(
            id=self.id,
            subject=self.subject,
            object_name=self.object_name,
            state=self.state,
            size=self.size,
            content_type=self.content_type,
            sha256=self.sha256,
            producer_id=self.owner.producer_id if self.owner else None,
            seqno=self.seqno,
            created_at=self.created_at,
            expires_at=self.expires_at,
            multipart_id=self.multipart_id,
            part_size=self.part_size,
            parts_seen=self.parts_seen,
            byte_from=self.byte_from,
        )


@dataclass(slots=True)
class Trash:
    due_at: int
    reason: str
    multipart: bool
    not_before: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key's message."""

    digest: str
    sequence: int
    at: int


def made_at_ms(pack_name: str) -> int | None:
    """When a pack was made, by its name; None for an object that is not ours."""
    found = _PACK.match(pack_name)
    return int(found[1] + found[2], 16) if found else None
