"""Payloads to upload, read piece by piece: a file never has to fit into memory."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from minitoolstream.domain.errors import MtsError, bad_request, not_found
from minitoolstream.domain.limits import MIB

_CHUNK = MIB
_HASH_CHUNK = 4 * MIB


class Source(Protocol):
    """A payload of known size whose parts can be read again."""

    @property
    def size(self) -> int: ...

    async def sha256(self) -> str: ...

    async def md5(self, first: int, length: int) -> str: ...

    def chunks(self, first: int, length: int) -> AsyncIterator[bytes]: ...

    def check_unchanged(self) -> None:
        """Raises `file_changed` when it is no longer what it was at the start."""


class BytesSource:
    """A payload that is in memory already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    async def sha256(self) -> str:
        return await asyncio.to_thread(lambda: hashlib.sha256(self._data).hexdigest())

    async def md5(self, first: int, length: int) -> str:
        part = memoryview(self._data)[first : first + length]
        return await asyncio.to_thread(lambda: hashlib.md5(part, usedforsecurity=False).hexdigest())

    async def chunks(self, first: int, length: int) -> AsyncIterator[bytes]:
        for start in range(first, first + length, _CHUNK):
            yield self._data[start : min(start + _CHUNK, first + length)]

    def check_unchanged(self) -> None:
        return


class FileSource:
    """A file. Threads read and hash it, a chunk at a time, so that a cancel takes effect soon."""

    def __init__(self, path: Path) -> None:
        path = path.absolute()
        self.path = path
        try:
            info = path.stat()
        except OSError as error:
            kind = not_found if isinstance(error, FileNotFoundError | NotADirectoryError) else bad_request
            raise kind(f"cannot read {path}: {error.strerror}", path=str(path)) from None
        if not path.is_file():
            kind_of_path = "a directory" if path.is_dir() else "not a regular file"
            raise bad_request(f"{path} is {kind_of_path}; give a file", path=str(path))
        self.size = info.st_size
        self.mtime_ns = info.st_mtime_ns

    async def sha256(self) -> str:
        return await self._digest(hashlib.sha256(), 0, self.size)

    async def md5(self, first: int, length: int) -> str:
        return await self._digest(hashlib.md5(usedforsecurity=False), first, length)

    async def chunks(self, first: int, length: int) -> AsyncIterator[bytes]:
        file = self._open()
        try:
            for start in range(first, first + length, _CHUNK):
                wanted = min(_CHUNK, first + length - start)
                chunk = await asyncio.to_thread(os.pread, file, wanted, start)
                if len(chunk) < wanted:
                    raise self._changed()
                yield chunk
        finally:
            os.close(file)

    def check_unchanged(self) -> None:
        try:
            info = self.path.stat()
        except OSError:
            raise self._changed() from None
        if (info.st_size, info.st_mtime_ns) != (self.size, self.mtime_ns):
            raise self._changed()

    async def _digest(self, digest: hashlib._Hash, first: int, length: int) -> str:
        file = self._open()
        try:
            for start in range(first, first + length, _HASH_CHUNK):
                wanted = min(_HASH_CHUNK, first + length - start)
                if await asyncio.to_thread(_hash_some, digest, file, wanted, start) < wanted:
                    raise self._changed()
        finally:
            os.close(file)
        return digest.hexdigest()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise bad_request(f"cannot read {self.path}: {error.strerror}", path=str(self.path)) from None

    def _changed(self) -> MtsError:
        return MtsError(
            "file_changed",
            f"{self.path} changed while it was being published; nothing was published",
            {"path": str(self.path)},
        )


def _hash_some(digest: hashlib._Hash, file: int, length: int, start: int) -> int:
    chunk = os.pread(file, length, start)
    digest.update(chunk)
    return len(chunk)
