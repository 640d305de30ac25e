"""What the services need of the outside, in the words of the domain. Adapters fulfil these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import Group
from minitoolstream.domain.upload import Receipt, StoredObject, Upload, UploadSpec


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request anyone may send until it expires; `headers` must be sent as they are."""

    method: str
    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredPart:
    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    name: str
    size: int
    etag: str


class Signer(Protocol):
    """Presigns requests to the object store's public endpoint. Pure computation, no network."""

    def put(
        self,
        name: str,
        *,
        size: int,
        content_type: str,
        expires_in: int,
        sha256: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SignedRequest:
        """One PUT of exactly this key, size, type, checksum and metadata, never over an existing object.

        `Content-Length` is signed but not listed in the headers (rule 11).
        """

    def put_part(
        self, name: str, *, multipart_id: str, number: int, size: int, expires_in: int, md5: str | None = None
    ) -> SignedRequest:
        """`md5` is hex; it is signed as Content-MD5, so that the store refuses a damaged part."""

    def get_many(self, requests: Sequence[GetRequest], *, expires_in: int) -> list[str]:
        """URLs for a page of downloads, signed in one go: the time and key are derived once."""


@dataclass(frozen=True, slots=True)
class GetRequest:
    """A download to sign. `byte_range` is (first, last) inclusive and becomes a signed Range header."""

    name: str
    content_type: str
    byte_range: tuple[int, int] | None = None


class PayloadStore(Protocol):
    """The object store as the host uses it. Every failure is an MtsError; `unavailable` when it is down."""

    async def put_new(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        """Store a new object; an existing key is an error `already_exists`."""

    async def get_range(self, name: str, first: int, last: int) -> bytes:
        """Bytes first..last inclusive; MtsError `payload_missing` when the object is gone."""

    async def find(self, name: str) -> ObjectInfo | None:
        """Ask by listing, which answers while a PUT on the key is still running (rule 10)."""

    async def is_being_written(self, name: str) -> bool:
        """True when a HEAD on the key does not answer within a second: a PUT holds its lock (rule 10)."""

    async def list_after(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        """Objects below a prefix in key order, after a key."""

    async def delete_many(self, names: Sequence[str]) -> list[str]:
        """Delete; returns the names that are gone for sure. Missing objects count as gone."""

    async def create_multipart(self, name: str, *, content_type: str, metadata: Mapping[str, str]) -> str: ...

    async def list_parts(self, name: str, multipart_id: str) -> list[StoredPart] | None:
        """All parts that arrived, in order; None when the store no longer knows the multipart."""

    async def complete_multipart(self, name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
        """True when this call made the object; False when the key existed or the multipart is gone:
        look at the key to see what became of it (rule 9)."""

    async def abort_multipart(self, name: str, multipart_id: str) -> None:
        """Idempotent."""

    async def list_multiparts(self, name: str) -> list[str]:
        """The ids of all unfinished multipart uploads of exactly this key."""

    async def check(self) -> None:
        """Raises when the bucket cannot be reached."""

    async def close(self) -> None: ...


class Metrics(Protocol):
    """Counters of one process. Every call takes well under a microsecond, so nobody needs to think before counting."""

    def operation(self, part: str, operation: str, status: str) -> None:
        """One call to `tarantool` or `minio`, with how it ended (`ok`, or an error's code)."""

    def rejected(self, reason: str) -> None:
        """An event or object that was not committed, with the reason an operator shall see."""

    def committed(self, count: int) -> None:
        """Messages that became visible."""

    def delivered(self, count: int) -> None:
        """Messages handed to readers."""


class NoMetrics:
    """For those who count nothing: a Lambda, a test, a script."""

    def operation(self, part: str, operation: str, status: str) -> None: ...

    def rejected(self, reason: str) -> None: ...

    def committed(self, count: int) -> None: ...

    def delivered(self, count: int) -> None: ...


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


@dataclass(frozen=True, slots=True)
class ExtentPage:
    extents: list[Extent]
    next_sequence: int
    latest_sequence: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Uploads whose state changed; `lost` says that some may be missing: look again."""

    cursor: tuple[str, int]
    lost: bool
    upload_ids: list[str]


class MetadataStore(Protocol):
    """The order of messages and the state of uploads. Every answer is durable when it comes."""

    async def create_uploads(self, subject: str, specs: Sequence[UploadSpec]) -> list[NewUpload]: ...

    async def get_upload(self, upload_id: str) -> tuple[Upload, Receipt] | None: ...

    async def set_multipart(self, upload_id: str, multipart_id: str) -> Upload:
        """The first multipart id given counts; compare the answer's."""

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

    async def commit_pack(self, object_name: str, groups: Sequence[Group]) -> list[list[PackResult]]:
        """A result for each message of each group, in order."""

    async def start_producer(self, subject: str, producer_id: str) -> tuple[int, int]:
        """A new epoch, and the last seqno that is stored (0: none)."""

    async def get_messages(
        self, subject: str, start: int, limit: int, *, partition: int | None = None, whole: bool = False
    ) -> ExtentPage: ...

    async def get_message(self, sequence: int) -> Extent | None: ...

    async def latest_sequence(self, subject: str) -> int: ...

    async def wait_for_changes(self, cursor: tuple[str, int], timeout: float) -> Changes: ...

    async def trash_due(self, limit: int) -> list[tuple[str, bool]]:
        """What is to be deleted from the bucket: names, and whether parts of an upload may be there too."""

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

    async def subjects(self, after: str, limit: int) -> list[dict[str, Any]]: ...

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class PackResult(msgspec.Struct, frozen=True, gc=False):
    """A receipt, or the error that this message alone met."""

    receipt: Receipt | None
    error: MtsError | None = None
