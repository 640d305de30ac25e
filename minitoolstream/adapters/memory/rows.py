"""The rows of the metadata store in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from minitoolstream.adapters.memory.producers import Producer
from minitoolstream.domain.upload import State, Upload

NEVER = 2**53
_PACK = re.compile(r"_mts/packs/([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")


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
    multipart_id: str | None = None


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
