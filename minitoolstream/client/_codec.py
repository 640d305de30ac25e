"""Codecs of payloads: the SDK compresses and decompresses, the store and the host see only what is stored."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import zstandard

from minitoolstream.client._types import Message
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.subject_settings import check_codec

MAX_IN_MEMORY = 256 * MIB
"""What a payload may grow to when it is decompressed in memory; files and streams have no such end."""
MAX_TOGETHER = 64 * MIB
"""The same for all payloads of a page or pack; those beyond it are left in the store."""
_LEVEL = 6
_BLOCK = MIB
_SLICE = KIB // 4
"""Bytes given to a zstd decoder at once: each of its blocks of 4 bytes may become 128 KiB."""
_LARGEST_WINDOW = 128 * MIB
_IN_LOOP = 256 * KIB
"""Up to here, a thread costs more than the work."""


async def encode(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    if len(data) <= _IN_LOOP:
        return encode_now(data, codec)
    return await asyncio.to_thread(encode_now, data, codec)


def encode_now(data: bytes, codec: str | None) -> bytes:
    if codec is None:
        return data
    if codec == "gzip":
        return gzip.compress(data, _LEVEL, mtime=0)
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


async def decode(data: bytes, codec: str | None, sequence: int, limit: int = MAX_IN_MEMORY) -> bytes:
    """The payload as it was published; an error `too_large` when it would grow beyond `limit`."""
    if check_codec(codec) is None:
        return data
    if len(data) <= _IN_LOOP // 16:
        return decode_now(data, codec, sequence, limit)
    return await asyncio.to_thread(decode_now, data, codec, sequence, limit)


def decode_now(data: bytes, codec: str | None, sequence: int, limit: int = MAX_IN_MEMORY) -> bytes:
    if check_codec(codec) is None:
        return data
    decoder = Decoder(codec, sequence)
    pieces: list[bytes] = []
    size = 0
    for piece in decoder.feed(data):
        size += len(piece)
        if size > limit:
            raise MtsError(
                "too_large",
                f"the payload of message {sequence} grows beyond {limit // MIB} MiB; save or stream it instead",
                {"sequence": sequence},
            )
        pieces.append(piece)
    decoder.finish()
    return b"".join(pieces)


async def expanded(messages: Sequence[Message]) -> list[Message]:
    """Payloads that came along, as they were published; where they would grow too large, without `data`."""
    if not any(message.codec and message.data is not None for message in messages):
        return list(messages)
    return await asyncio.to_thread(_expanded, messages)


def _expanded(messages: Sequence[Message]) -> list[Message]:
    left = MAX_TOGETHER
    found: list[Message] = []
    for message in messages:
        data = message.data
        if data is not None and check_codec(message.codec) is not None:
            try:
                data = decode_now(data, message.codec, message.sequence, left)
                left -= len(data)
            except MtsError as error:
                if error.code != "too_large":
                    raise
                data = None
        found.append(replace(message, data=data))
    return found


class Decoder:
    """Piece by piece, in bounded memory whatever the input; frames that follow each other are one payload."""

    def __init__(self, codec: str | None, sequence: int) -> None:
        self._codec = check_codec(codec)
        self._sequence = sequence
        self._frame: Any = None
        self._begun = False

    def feed(self, block: bytes) -> Iterator[bytes]:
        if self._codec is None:
            yield block
            return
        try:
            yield from self._gunzip(block) if self._codec == "gzip" else self._unzstd(block)
        except (zlib.error, zstandard.ZstdError) as error:
            raise self._damaged(str(error)) from None

    def finish(self) -> None:
        if self._codec and (self._frame is not None or not self._begun):
            raise self._damaged("it ends in the middle")

    def _gunzip(self, block: bytes) -> Iterator[bytes]:
        more = bool(block)
        while more:
            if self._frame is None:
                self._frame, self._begun = zlib.decompressobj(wbits=31), True
            frame = self._frame
            piece = frame.decompress(block, _BLOCK)
            block = frame.unconsumed_tail
            more = bool(block) or len(piece) == _BLOCK
            if frame.eof:
                block, self._frame = frame.unused_data, None
                more = bool(block)
            if piece:
                yield piece

    def _unzstd(self, block: bytes) -> Iterator[bytes]:
        for start in range(0, len(block), _SLICE):
            rest = block[start : start + _SLICE]
            while rest:
                if self._frame is None:
                    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
                    self._frame, self._begun = decompressor.decompressobj(), True
                frame = self._frame
                piece = frame.decompress(rest)
                rest = b""
                if frame.eof:
                    rest, self._frame = frame.unused_data, None
                if piece:
                    yield piece

    def _damaged(self, why: str) -> MtsError:
        message = f"the payload of message {self._sequence} is not valid {self._codec}: {why}"
        return MtsError("checksum_mismatch", message, {"sequence": self._sequence})


# -- files


@asynccontextmanager
async def compressed_file(path: Path, codec: str | None) -> AsyncIterator[Path]:
    """The file to upload: itself, or a compressed copy that goes when the upload has ended."""
    if codec is None:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="mts-codec-") as copy:
        await asyncio.to_thread(_compress, path, copy.file, codec)
        yield Path(copy.name)


def _compress(path: Path, copy: IO[bytes], codec: str) -> None:
    try:
        info = path.stat()
        with path.open("rb") as file:
            if codec == "gzip":
                with gzip.GzipFile(fileobj=copy, filename="", mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
                    shutil.copyfileobj(file, packed, _BLOCK)
            else:
                zstandard.ZstdCompressor(write_checksum=True).copy_stream(file, copy)
    except OSError as error:
        raise bad_request(f"cannot read {path}: {error.strerror}", path=str(path)) from None
    copy.flush()
    os.utime(copy.name, ns=(info.st_atime_ns, info.st_mtime_ns))  # an interrupted upload is known by it


def expand(stored: IO[bytes], target: IO[bytes], codec: str | None, sequence: int) -> None:
    """A stored payload as it was published, from file to file."""
    decoder = Decoder(codec, sequence)
    while block := stored.read(_BLOCK):
        for piece in decoder.feed(block):
            target.write(piece)
    decoder.finish()
