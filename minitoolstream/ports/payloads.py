"""The object store: what is signed for it, and what the host itself does there."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request anyone may send until it expires; `headers` must be sent as they are."""

    method: str
    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GetRequest:
    """A download to sign. `byte_range` is (first, last) inclusive and becomes a signed Range header."""

    name: str
    content_type: str
    byte_range: tuple[int, int] | None = None


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
class StoredPart:
    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    name: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectAbout:
    """What an object tells of itself; `metadata` are its `x-amz-meta-*` headers, as they were sent. `modified` is when
    it was stored, in seconds by the store's clock."""

    size: int
    content_type: str
    modified: int
    metadata: Mapping[str, str]


class PayloadStore(Protocol):
    """The object store as the host uses it. Every failure is an MtsError; `unavailable` when it is down."""

    async def put_new(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        """Store a new object; an existing key is an error `already_exists`."""

    async def put_fresh(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        """Store an object under a name that was made for it just now, and that nobody uses again. Sent once, whatever
        happens, so the store need not look whether the key exists: that look takes it a tenth of a PUT."""

    async def get_range(self, name: str, first: int, last: int) -> bytes:
        """Bytes first..last inclusive; MtsError `payload_missing` when the object is gone."""

    async def get_whole(self, name: str, size: int) -> bytes:
        """An object of exactly this size; MtsError `size_mismatch` when it has another one."""

    async def get_begin(self, name: str, most: int) -> tuple[bytes, int]:
        """At most so many of its first bytes, and the size of all; MtsError `payload_missing` when it is not there."""

    async def find(self, name: str) -> ObjectInfo | None:
        """Answers, if only after a second, while a PUT on the key is still running (rule 10). MtsError when there is no
        bucket: nothing is said of its objects then."""

    async def about(self, name: str) -> ObjectAbout | None:
        """None when there is no such object."""

    async def is_being_written(self, name: str) -> bool:
        """True when a HEAD on the key does not answer within a second: a PUT holds its lock (rule 10)."""

    async def list_after(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        """Objects below a prefix in key order, after a key."""

    async def delete_many(self, names: Sequence[str]) -> list[str]:
        """Delete; returns the names that are gone for sure. Missing objects count as gone."""

    async def create_multipart(self, name: str, *, content_type: str, metadata: Mapping[str, str]) -> str: ...

    async def put_part(
        self, name: str, multipart_id: str, number: int, body: bytes | Sequence[bytes]
    ) -> StoredPart: ...

    async def list_parts(self, name: str, multipart_id: str) -> list[StoredPart] | None:
        """All parts that arrived, in order; None when the store no longer knows the multipart."""

    async def complete_multipart(self, name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
        """True when this call made the object; False when the key existed or the multipart is gone:
        look at the key to see what became of it (rule 9)."""

    async def abort_multipart(self, name: str, multipart_id: str) -> None:
        """Idempotent."""

    async def list_multiparts(self, name: str) -> list[str]:
        """The ids of all unfinished multipart uploads of exactly this key."""

    async def now_ms(self) -> int:
        """The store's own clock, to the second."""

    async def check(self) -> None:
        """Raises when the bucket cannot be reached."""

    async def close(self) -> None: ...


class BlockReader(Protocol):
    """Large objects for ordinary code. Every failure is an MtsError, as of a `PayloadStore`."""

    def blocks(self, name: str, first: int, last: int, *, size: int | None = None) -> Generator[bytes]:
        """Bytes first..last inclusive, in pieces, which are on their way from now on; close it if they are not read.
        With `size`, an object of another one is a `size_mismatch`."""
