"""An object store in memory, for tests of services. The contract tests hold it against real MinIO."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from minitoolstream.adapters.memory.order import ManualClock
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.limits import MIN_PART_BYTES
from minitoolstream.ports import ObjectAbout, ObjectInfo, StoredPart

_BLOCK = 1024 * 1024


@dataclass
class StoredPayload:
    body: bytes
    etag: str
    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    at: int = field(default_factory=lambda: int(time.time()))


@dataclass
class Multipart:
    name: str
    content_type: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class MemoryPayloads:
    """Fulfils `ports.PayloadStore` and `ports.BlockReader`.

    A test may set `down` and `clock`, put names into `being_written`, and play the producer with `client_put` and
    `client_put_part`.
    """

    def __init__(self, *, min_part: int = MIN_PART_BYTES) -> None:
        self.objects: dict[str, StoredPayload] = {}
        self.multiparts: dict[str, Multipart] = {}
        self.being_written: set[str] = set()
        self.down = False
        self.clock = ManualClock()
        self._min_part = min_part
        self._multiparts_made = 0

    # -- what a producer does with its ticket

    def client_put(
        self,
        name: str,
        body: bytes,
        *,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """The PUT of a ticket; answers the ETag. A second one is refused as the store does."""
        self._store(name, StoredPayload(body, _md5(body), content_type, metadata or {}))
        return _md5(body)

    def client_put_part(self, name: str, multipart_id: str, number: int, body: bytes) -> str:
        multipart = self._multipart(name, multipart_id)
        if multipart is None:
            raise MtsError("not_found", "NoSuchUpload")
        multipart.parts[number] = body
        return _md5(body)

    # -- PayloadStore

    async def put_new(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        self._must_be_up()
        self.client_put(name, body if isinstance(body, bytes) else b"".join(body), content_type=content_type)

    async def put_fresh(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        await self.put_new(name, body, content_type=content_type)

    async def get_range(self, name: str, first: int, last: int) -> bytes:
        self._must_be_up()
        stored = self.objects.get(name)
        if stored is None or len(stored.body) <= last:
            raise MtsError("payload_missing", "the object store does not have these bytes")
        return stored.body[first : last + 1]

    def blocks(self, name: str, first: int, last: int, *, size: int | None = None) -> Generator[bytes]:
        self._must_be_up()
        stored = self.objects.get(name)
        if stored is not None and size not in {None, len(stored.body)}:
            raise MtsError("size_mismatch", f"the object has not {size} bytes")
        if stored is None or len(stored.body) <= last:
            raise MtsError("payload_missing", "the object store does not have these bytes")
        for at in range(first, last + 1, _BLOCK):
            yield stored.body[at : min(at + _BLOCK, last + 1)]

    async def get_whole(self, name: str, size: int) -> bytes:
        self._must_be_up()
        stored = self.objects.get(name)
        if stored is None:
            raise MtsError("payload_missing", "the object store does not have the object")
        if len(stored.body) != size:
            raise MtsError("size_mismatch", f"the object has not {size} bytes")
        return stored.body

    async def get_begin(self, name: str, most: int) -> tuple[bytes, int]:
        self._must_be_up()
        stored = self.objects.get(name)
        if stored is None:
            raise MtsError("payload_missing", "the object store does not have the object")
        return stored.body[:most], len(stored.body)

    async def find(self, name: str) -> ObjectInfo | None:
        self._must_be_up()
        stored = self.objects.get(name)
        return ObjectInfo(name, len(stored.body), stored.etag) if stored else None

    async def about(self, name: str) -> ObjectAbout | None:
        self._must_be_up()
        stored = self.objects.get(name)
        return ObjectAbout(len(stored.body), stored.content_type, stored.at, dict(stored.metadata)) if stored else None

    async def is_being_written(self, name: str) -> bool:
        self._must_be_up()
        return name in self.being_written

    async def list_after(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        self._must_be_up()
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > start_after)
        return [ObjectInfo(name, len(self.objects[name].body), self.objects[name].etag) for name in names[:limit]]

    async def delete_many(self, names: Sequence[str]) -> list[str]:
        self._must_be_up()
        gone = [name for name in names if name not in self.being_written]
        for name in gone:
            self.objects.pop(name, None)
        return gone

    async def create_multipart(self, name: str, *, content_type: str, metadata: Mapping[str, str]) -> str:
        self._must_be_up()
        self._multiparts_made += 1
        multipart_id = f"multipart-{self._multiparts_made}"
        self.multiparts[multipart_id] = Multipart(name, content_type, metadata)
        return multipart_id

    async def put_part(self, name: str, multipart_id: str, number: int, body: bytes | Sequence[bytes]) -> StoredPart:
        self._must_be_up()
        whole = body if isinstance(body, bytes) else b"".join(body)
        return StoredPart(number, len(whole), self.client_put_part(name, multipart_id, number, whole))

    async def list_parts(self, name: str, multipart_id: str) -> list[StoredPart] | None:
        self._must_be_up()
        multipart = self._multipart(name, multipart_id)
        if multipart is None:
            return None
        return [StoredPart(number, len(body), _md5(body)) for number, body in sorted(multipart.parts.items())]

    async def complete_multipart(self, name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
        self._must_be_up()
        if not parts:
            raise MtsError("upload_incomplete", "no part of the upload has arrived")
        multipart = self._multipart(name, multipart_id)
        if multipart is None or name in self.objects:
            return False
        bodies = [multipart.parts.get(part.number, b"") for part in parts]
        same = all(_md5(body) == part.etag for body, part in zip(bodies, parts, strict=True))
        in_order = [part.number for part in parts] == sorted({part.number for part in parts})
        if not (same and in_order) or any(len(body) < self._min_part for body in bodies[:-1]):
            raise MtsError("upload_incomplete", "the parts in the store do not make up the upload")
        digests = b"".join(bytes.fromhex(_md5(body)) for body in bodies)
        etag = f"{_md5(digests)}-{len(bodies)}"
        self._store(name, StoredPayload(b"".join(bodies), etag, multipart.content_type, dict(multipart.metadata)))
        del self.multiparts[multipart_id]
        return True

    async def list_multiparts(self, name: str) -> list[str]:
        self._must_be_up()
        return [multipart_id for multipart_id, multipart in self.multiparts.items() if multipart.name == name]

    async def abort_multipart(self, name: str, multipart_id: str) -> None:
        self._must_be_up()
        if self._multipart(name, multipart_id):
            del self.multiparts[multipart_id]

    async def now_ms(self) -> int:
        self._must_be_up()
        return self.clock.seconds() * 1000

    async def check(self) -> None:
        self._must_be_up()

    async def close(self) -> None:
        pass

    def _must_be_up(self) -> None:
        if self.down:
            raise unavailable("the object store does not answer")

    def _store(self, name: str, stored: StoredPayload) -> None:
        if name in self.objects:
            raise MtsError("already_exists", "an object of this name exists already")
        self.objects[name] = stored

    def _multipart(self, name: str, multipart_id: str) -> Multipart | None:
        multipart = self.multiparts.get(multipart_id)
        return multipart if multipart and multipart.name == name else None


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
