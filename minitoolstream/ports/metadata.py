"""The order of messages, the state of uploads, and what is to be looked at or deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from minitoolstream.domain.consumer import Filter
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import Group
from minitoolstream.domain.upload import Receipt, StoredObject, Upload, UploadSpec


@dataclass(frozen=True, slots=True)
class NewUpload:
    """What a ticket request led to: an upload to sign, or what is known of this seqno already."""

    upload: Upload | None
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class DueUploads:
    uploads: list[Upload]
    removed: int
    more: bool


class Doomed(NamedTuple):
    """An object to delete. `multipart`: parts of an upload may be there too; `moved`: its messages are in another
    object now, and it must stay until the journal tells so."""

    name: str
    multipart: bool
    moved: bool


WALK_AT_ONCE = 2000
"""Messages a page of a walk: some milliseconds of a metadata store with one thread."""


@dataclass(frozen=True, slots=True)
class ExtentPage:
    extents: list[Extent]
    next_sequence: int
    latest_sequence: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Uploads whose state changed, and names: of subjects with new messages, and of durables (`subject/durable`) that
    others moved. `lost` says that some may be missing: look again."""

    cursor: tuple[str, int]
    lost: bool
    upload_ids: list[str]
    names: list[str]


class PackResult(msgspec.Struct, frozen=True, gc=False):
    """A receipt, or the error that this message alone met. `object_name`: the pack that a new message lies in."""

    receipt: Receipt | None
    error: MtsError | None = None
    object_name: str = ""


class GroupResults(list[PackResult]):
    """A result for each message of a group, and the retention class of its subject: messages of one class end together.
    None where the store does not tell."""

    def __init__(self, results: Iterable[PackResult] = (), retention: str | None = None) -> None:
        super().__init__(results)
        self.retention = retention


class MetadataStore(Protocol):
    """The order of messages and the state of uploads. Every answer is durable when it comes."""

    async def create_uploads(self, subject: str, specs: Sequence[UploadSpec]) -> list[NewUpload]: ...

    async def get_upload(self, upload_id: str) -> tuple[Upload, Receipt] | None: ...

    async def set_multipart(self, upload_id: str, multipart_id: str | None, lost: str | None = None) -> Upload:
        """The first multipart id given counts, unless that is `lost`; compare the answer's. None: it has none."""

    async def extend_upload(self, upload_id: str) -> Upload: ...

    async def commit_uploads(self, stored: Sequence[StoredObject]) -> list[Receipt | None]:
        """What became of each, in order; None for an upload nobody knows."""

    async def abort_upload(self, upload_id: str) -> tuple[Upload, Receipt, bool]:
        """The upload, what became of it, and whether its payload is in the trash now."""

    async def expire_upload(self, upload_id: str) -> Receipt: ...

    async def resume_upload(self, upload_id: str) -> None: ...

    async def uploads_due(self, limit: int) -> DueUploads: ...

    async def postpone_upload(self, upload_id: str, parts_seen: int) -> None: ...

    async def settle_upload(self, upload_id: str, *, object_is_there: bool) -> None: ...

    async def commit_pack(
        self, object_name: str, groups: Sequence[Group], *, all_or_none: bool = False
    ) -> list[GroupResults]:
        """A result for each message of each group, in order. `all_or_none`: it is one batch, in a transaction."""

    async def start_producer(
        self, subject: str, producer_id: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, int | None]:
        """A new epoch, and the last seqno that is stored, if any. Messages that carry the epoch get `headers`
        beneath their own."""

    async def get_messages(
        self,
        subject: str,
        start: int,
        limit: int,
        *,
        partition: int | None = None,
        whole: bool = False,
        conditions: Filter = (),
    ) -> ExtentPage:
        """With conditions, a page may be short or empty before the end: go on from `next_sequence`."""

    def walk_extents(
        self, subject: str, first: int, last: int, *, partition: int | None = None, at_once: int = WALK_AT_ONCE
    ) -> AsyncGenerator[list[Extent], None]:
        """Whole extents with messages from `first` on, page by page, the next one on its way while the caller has this
        one. The first begins at `first`; the last ones may lie behind `last`."""

    async def sequence_at(self, subject: str, seconds: int) -> int:
        """The first message that became visible at this unix time or later; else the next sequence to come."""

    async def get_message(self, sequence: int) -> Extent | None: ...

    async def latest_sequence(self, subject: str) -> int: ...

    async def wait_for_changes(self, cursor: tuple[str, int], timeout: float) -> Changes: ...

    async def trash_due(self, limit: int) -> list[Doomed]:
        """What is to be deleted from the bucket now."""

    async def trash_done(self, names: Sequence[str]) -> None: ...

    async def trash_postpone(self, names: Sequence[str], seconds: int) -> None: ...

    async def packs_cursor(self) -> str: ...

    async def settle_packs(self, cursor: str, names: Sequence[str]) -> tuple[int, int]:
        """How many were settled, and how many of them discarded."""

    async def trim_idempotency(self) -> int: ...

    async def reject_event(self, object_name: str, reason: str) -> None: ...

    async def take_lease(self, name: str, owner: str, seconds: float) -> bool: ...

    async def now_ms(self) -> int: ...

    async def status(self) -> dict[str, Any]: ...

    async def subjects(self, after: str, limit: int, prefix: str = "") -> tuple[list[dict[str, Any]], bool]:
        """By name, up to `limit` or fewer, and whether there are more."""

    async def check(self) -> None: ...

    async def close(self) -> None: ...
