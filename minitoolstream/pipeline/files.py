"""The pipeline's files: in a folder, or below `s3://bucket/prefix` on the store of the settings.

    <filename>.plan.json          what the file holds, and how it is split
    <filename>.event-ingest.txt   its messages, a JSON line each
    <filename>.shard-<n>.txt      those of one shard
    <filename>.shard-<n>.rows.txt what the worker made of them, a JSON line a row
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from minitoolstream.bootstrap import open_payloads
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.keys import PAYLOAD_PREFIX, SYSTEM_PREFIX
from minitoolstream.domain.tracking import FILE_SUFFIX
from minitoolstream.ports import PayloadStore

T = TypeVar("T")
_TEXT = "text/plain; charset=utf-8"


class Files(Protocol):
    """Named files that appear whole or not at all."""

    def put_new(self, name: str, body: bytes, content_type: str = ...) -> None:
        """MtsError `already_exists` when the name is taken."""

    def get(self, name: str) -> bytes:
        """MtsError `payload_missing` when there is none."""

    def url(self, name: str = "") -> str: ...


def plan_name(filename: str) -> str:
    return f"{filename}.plan.json"


def events_name(filename: str) -> str:
    return f"{filename}{FILE_SUFFIX}"


def input_name(filename: str, shard: int) -> str:
    return f"{filename}.shard-{shard}.txt"


def rows_name(filename: str, shard: int) -> str:
    return f"{filename}.shard-{shard}.rows.txt"


def put_once(files: Files, name: str, body: bytes) -> bool:
    """False when it is there already: whoever was first has it."""
    try:
        files.put_new(name, body, _TEXT)
    except MtsError as error:
        if error.code != "already_exists":
            raise
        return False
    return True


def find(files: Files, name: str) -> bytes | None:
    try:
        return files.get(name)
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        return None


def open_files(url: str, settings: Settings) -> Files:
    if url.startswith("s3://"):
        return BucketFiles(url, settings)
    if "://" in url:
        raise bad_request(f"{url} is neither a folder nor s3://bucket/prefix")
    return FolderFiles(Path(url))


class FolderFiles:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def put_new(self, name: str, body: bytes, content_type: str = "") -> None:  # noqa: ARG002
        target = self._path / name
        scratch = target.with_name(f".{name}.{uuid.uuid4().hex}")
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.link(scratch, target)  # where a rename would replace, this fails
        except FileExistsError:
            raise MtsError("already_exists", f"{target} exists already") from None
        except OSError as error:
            raise MtsError("cannot_write", f"cannot write {target}: {error.strerror}") from None
        finally:
            scratch.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            raise MtsError("payload_missing", f"there is no file {self._path / name}") from None
        except OSError as error:
            raise MtsError("cannot_read", f"cannot read {self._path / name}: {error.strerror}") from None

    def url(self, name: str = "") -> str:
        return str(self._path / name)


class BucketFiles:
    """Opened for each call: a connection would not outlive the pause between two tasks."""

    def __init__(self, url: str, settings: Settings) -> None:
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, prefix.strip("/") + "/"
        if not bucket or self._prefix == "/":
            raise bad_request(f"{url} is not of the form s3://bucket/prefix")
        if self._prefix.startswith((PAYLOAD_PREFIX, SYSTEM_PREFIX)):
            raise bad_request(f"{self._prefix} is the system's own: take another prefix")
        self._settings = settings.with_values(minio__bucket=bucket)

    def put_new(self, name: str, body: bytes, content_type: str = _TEXT) -> None:
        self._with(lambda store: store.put_new(self._prefix + name, body, content_type=content_type))

    def get(self, name: str) -> bytes:
        return self._with(lambda store: _whole(store, self._prefix + name))

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


async def _whole(store: PayloadStore, name: str) -> bytes:
    found = await store.find(name)
    if found is None:
        raise MtsError("payload_missing", f"there is no object {name}")
    return await store.get_range(name, 0, found.size - 1) if found.size else b""
