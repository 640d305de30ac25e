"""Files of the pipeline and of Spark steps: in a folder that every node sees, or below `s3://bucket/prefix`.

A file appears whole or not at all, and is never written over: that is what a manifest's meaning rests on.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from minitoolstream.bootstrap import open_blocks, open_payloads
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.keys import PAYLOAD_PREFIX, SYSTEM_PREFIX
from minitoolstream.domain.limits import MIB
from minitoolstream.ports import PayloadStore

T = TypeVar("T")
_AT_ONCE = 1000
_PART = 8 * MIB
_BLOCK = 256 * 1024


class Place(Protocol):
    """Named files. Failures are MtsErrors: `already_exists`, `payload_missing`, `unavailable` and so on."""

    def put_new(self, name: str, body: bytes, content_type: str = "application/octet-stream") -> None:
        """Store a file under a name that is free; `already_exists` when it is not."""

    def put_pieces(self, name: str, pieces: Iterable[bytes], content_type: str = "application/octet-stream") -> None:
        """The same, of any size: some MiB of it are held at a time. When `pieces` raises, there is no file."""

    def get(self, name: str) -> bytes: ...

    def blocks(self, name: str) -> Iterator[bytes]:
        """The file piece by piece."""

    def names(self, prefix: str = "") -> list[str]:
        """Names that begin so, sorted."""

    def url(self, name: str = "") -> str:
        """What to call it in a manifest."""


def place_of(url: str, settings: Settings) -> Place:
    """`s3://bucket/prefix`, `file:///folder` or a folder. The system's own prefixes are refused."""
    if url.startswith(("s3://", "s3a://")):
        return Bucket(url, settings)
    if "://" in url and not url.startswith("file://"):
        raise bad_request(f"{url} is neither a folder nor s3://bucket/prefix")
    return Folder(Path(url.removeprefix("file://")))


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def put_new(self, name: str, body: bytes, content_type: str = "") -> None:
        self.put_pieces(name, (body,), content_type)

    def put_pieces(self, name: str, pieces: Iterable[bytes], content_type: str = "") -> None:  # noqa: ARG002
        target = self._path / name
        scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            os.link(scratch, target)  # fails where a rename would replace
        except FileExistsError:
            raise MtsError("already_exists", f"{target} exists already") from None
        except OSError as error:
            raise MtsError("cannot_write", f"cannot write {target}: {error.strerror}") from None
        finally:
            scratch.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        return b"".join(self.blocks(name))

    def blocks(self, name: str) -> Iterator[bytes]:
        try:
            with (self._path / name).open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
        except FileNotFoundError:
            raise MtsError("payload_missing", f"there is no file {self._path / name}") from None
        except OSError as error:
            raise MtsError("cannot_read", f"cannot read {self._path / name}: {error.strerror}") from None

    def names(self, prefix: str = "") -> list[str]:
        found = (path.relative_to(self._path).as_posix() for path in self._path.rglob("*") if path.is_file())
        return sorted(name for name in found if name.startswith(prefix))

    def url(self, name: str = "") -> str:
        return (self._path / name).as_uri()


class Bucket:
    """Opened for each call: a place travels to executors, and connections do not."""

    def __init__(self, url: str, settings: Settings) -> None:
        bucket, _, prefix = url.partition("://")[2].partition("/")
        self._prefix = prefix.strip("/") + "/"
        if not bucket or self._prefix == "/":
            raise bad_request(f"{url} is not of the form s3://bucket/prefix")
        if self._prefix.startswith((PAYLOAD_PREFIX, SYSTEM_PREFIX)):
            raise bad_request(f"{self._prefix} is the system's own: take another prefix")
        self._bucket = bucket
        self._settings = settings.with_values(minio__bucket=bucket)

    def put_new(self, name: str, body: bytes, content_type: str = "application/octet-stream") -> None:
        self._with(lambda store: store.put_new(self._prefix + name, body, content_type=content_type))

    def put_pieces(self, name: str, pieces: Iterable[bytes], content_type: str = "application/octet-stream") -> None:
        self._with(lambda store: _put_pieces(store, self._prefix + name, _parts(pieces), content_type))

    def get(self, name: str) -> bytes:
        return b"".join(self.blocks(name))

    def blocks(self, name: str) -> Iterator[bytes]:
        found = self._with(lambda store: store.find(self._prefix + name))
        if found is None:
            raise MtsError("payload_missing", f"there is no object {self._prefix}{name}")
        return open_blocks(self._settings).blocks(found.name, 0, found.size - 1, size=found.size)

    def names(self, prefix: str = "") -> list[str]:
        return self._with(lambda store: _names(store, self._prefix, prefix))

    def url(self, name: str = "") -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def _with(self, work: Callable[[PayloadStore], Awaitable[T]]) -> T:
        async def opened() -> T:
            store = open_payloads(self._settings)
            try:
                return await work(store)
            finally:
                await store.close()

        # In a thread of its own, since the caller may be inside an event loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, opened()).result()


def _parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Together, of the size that a multipart takes; the last one may be smaller."""
    together: list[bytes] = []
    size = 0
    for piece in pieces:
        together.append(piece)
        size += len(piece)
        if size >= _PART:
            yield b"".join(together)
            together, size = [], 0
    yield b"".join(together)


async def _put_pieces(store: PayloadStore, name: str, parts: Iterator[bytes], content_type: str) -> None:
    first = next(parts)
    second = next(parts, None)
    if not second:
        await store.put_new(name, first, content_type=content_type)
        return
    multipart = await store.create_multipart(name, content_type=content_type, metadata={})
    try:
        stored = [await store.put_part(name, multipart, 1, first), await store.put_part(name, multipart, 2, second)]
        for number, part in enumerate(filter(None, parts), 3):
            stored.append(await store.put_part(name, multipart, number, part))
        completed = await store.complete_multipart(name, multipart, stored)
    except BaseException:
        with suppress(MtsError):  # what went wrong is told; parts that stay are ended by the store
            await store.abort_multipart(name, multipart)
        raise
    if not completed:  # it is there: another's, or ours, of which the store's answer was lost
        await store.abort_multipart(name, multipart)
        raise MtsError("already_exists", f"an object {name} exists already")


async def _names(store: PayloadStore, prefix: str, begin: str) -> list[str]:
    found: list[str] = []
    while True:
        after = prefix + found[-1] if found else ""
        page = await store.list_after(prefix + begin, after, _AT_ONCE)
        found += [item.name.removeprefix(prefix) for item in page]
        if len(page) < _AT_ONCE:
            return found
