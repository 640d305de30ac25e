"""Downloads: straight to disk, checked, resumed by range; a finished file appears under its name at once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from minitoolstream.client._codec import expand
from minitoolstream.client._read import Reader, check_digest, from_home
from minitoolstream.client._store import Progress, ProgressCallback
from minitoolstream.client._stream import BLOCK, StoredPayload
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Message
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.subject_settings import check_codec


class Download:
    """One message's payload on its way to a file."""

    def __init__(self, transport: Transport, message: Message, progress: ProgressCallback | None) -> None:
        self._transport = transport
        self._reader = Reader(transport)
        self._message = message
        self._codec = check_codec(message.codec) if message.data is None else None  # which came along as published
        self._progress = Progress(message.size, progress)

    async def to_path(self, path: Path) -> None:
        """To `path`, by way of a `.part` file beside it that a later call goes on with."""
        _refuse_directory(path)
        await self._locate()
        part = self._part_beside(path)
        try:
            try:
                await self._to_part(part)
                if self._codec:
                    await asyncio.to_thread(self._expand, part)
            except MtsError as error:
                _tidy(part, worthless=error.code in ("checksum_mismatch", "size_mismatch"))
                raise
            part.replace(path)
        except OSError as error:
            raise MtsError("cannot_write", f"cannot write {path}: {error.strerror}", {"path": str(path)}) from None

    async def to_file(self, file: BinaryIO) -> None:
        """To an open binary file, from its position on."""
        await self._locate()
        if not self._codec:
            await self._fill(_Sink(file, 0))
            return
        with tempfile.TemporaryFile(prefix="mts-codec-") as stored:  # checked before anything of it is used
            await self._fill(_Sink(stored, 0))
            stored.seek(0)
            await asyncio.to_thread(expand, stored, file, self._codec, self._message.sequence)

    def _expand(self, part: Path) -> None:
        """What was stored, and is right, becomes what was published."""
        expanded = part.with_name(part.name + ".new")
        try:
            with part.open("rb") as stored, expanded.open("wb") as target:
                expand(stored, target, self._codec, self._message.sequence)
            expanded.replace(part)
        finally:
            expanded.unlink(missing_ok=True)

    async def _locate(self) -> None:
        if self._message.url is None and self._message.data is None:
            self._message = await self._reader.get(self._message.sequence)

    def _part_beside(self, path: Path) -> Path:
        # Named after the object: what is left of another message's download is never taken for this one's.
        identity = f"{self._message.object_name} {self._message.range}"
        return path.with_name(f"{path.name}.{hashlib.sha256(identity.encode()).hexdigest()[:8]}.part")

    async def _to_part(self, part: Path) -> None:
        with part.open("ab") as file:
            _lock(file, part)
            sink = _Sink(file, self._usable(file))
            resumed = sink.count > 0
            if resumed:
                await sink.hash_existing(part)
                self._progress.add(sink.count)
            try:
                await self._fill(sink)
            except MtsError as error:
                a_copy = self._message.fallback_url is not None
                if not (resumed or a_copy) or error.code != "checksum_mismatch":
                    raise
                # The earlier part or the copy may be what is damaged: once more, from the start.
                if a_copy:
                    self._message = from_home(self._message)
                file.truncate(0)
                self._progress.reset()
                await self._fill(_Sink(file, 0))

    def _usable(self, file: BinaryIO) -> int:
        """Bytes of an earlier try that can be kept: a signed range can only be asked for as a whole."""
        count = os.fstat(file.fileno()).st_size
        if count and (self._message.range or self._message.data is not None or count > self._message.size):
            file.truncate(0)
            return 0
        return count

    async def _fill(self, sink: _Sink) -> None:
        if self._message.data is not None:
            await sink.write(self._message.data)
            self._progress.add(len(self._message.data))
            return
        stored = StoredPayload(self._transport, self._message, sink.count)
        async with contextlib.aclosing(stored.blocks()) as blocks:
            async for block in blocks:
                await sink.write(block)
                self._progress.add(len(block))
        if not self._message.unverified:  # else its size is not known
            message = self._message
            check_digest(sink.count, sink.digest.hexdigest(), message.size, message.sha256, message.sequence)


class _Sink:
    """Where bytes go, with their number and digest so far."""

    def __init__(self, file: BinaryIO, count: int) -> None:
        self._file = file
        self.count = count
        self.digest = hashlib.sha256()

    async def hash_existing(self, part: Path) -> None:
        with part.open("rb") as file:
            while block := await asyncio.to_thread(file.read, 4 * BLOCK):
                await asyncio.to_thread(self.digest.update, block)

    async def write(self, block: bytes) -> None:
        await asyncio.to_thread(self._write, block)

    def _write(self, block: bytes) -> None:
        self._file.write(block)
        self.digest.update(block)
        self.count += len(block)


def _refuse_directory(path: Path) -> None:
    if path.is_dir():
        raise bad_request(f"{path} is a directory; give a file name", path=str(path))


def _lock(file: BinaryIO, part: Path) -> None:
    """Two downloads into one file would mix; the lock ends with the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise MtsError(
            "already_running", f"another download is writing {part}: wait for it, or take another name"
        ) from None


def _tidy(part: Path, *, worthless: bool) -> None:
    if worthless or (part.exists() and part.stat().st_size == 0):
        part.unlink(missing_ok=True)
