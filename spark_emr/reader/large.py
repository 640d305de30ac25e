"""A payload of any size, block by block, in little memory."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import deque
from collections.abc import AsyncGenerator
from zlib import crc32

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.ports import PayloadStore
from spark_emr.reader.read import damage

BLOCK = 8 * MIB
_AHEAD = 4
_FRAME = struct.Struct(">II")


async def stored_blocks(store: PayloadStore, extent: Extent, *, checksum: bool = True) -> AsyncGenerator[bytes, None]:
    """The stored payload of an extent of one message. When its checksum does not fit, the last block is followed by an
    error with its sequence; without `checksum` it is not computed, which for large payloads is a good part of the
    time."""
    assert extent.count == 1, "payloads are streamed one by one"
    begin = 0 if extent.byte_from is None else extent.byte_from + FRAME_PREFIX
    try:
        expected = await _expected(store, extent)
        check = _Check(expected if checksum else None)
        ranges = deque(range(begin, begin + extent.size, BLOCK))
        coming: deque[asyncio.Task[bytes]] = deque()
        try:
            while ranges or coming:
                while ranges and len(coming) < _AHEAD:
                    first = ranges.popleft()
                    last = min(first + BLOCK, begin + extent.size) - 1
                    coming.append(asyncio.ensure_future(store.get_range(extent.object_name, first, last)))
                block = await coming.popleft()
                await asyncio.to_thread(check.feed, block)  # the next blocks come meanwhile
                yield block
        finally:
            for task in coming:
                task.cancel()
            await asyncio.gather(*coming, return_exceptions=True)
    except MtsError as error:
        if error.code in {"payload_missing", "size_mismatch"}:
            raise damage(extent, 0, error.code) from None
        raise
    if not check.fits():
        raise damage(extent, 0, "checksum_mismatch")


async def _expected(store: PayloadStore, extent: Extent) -> str | int | None:
    """SHA-256 of a whole object, when it is known, or CRC-32 of a frame."""
    if extent.byte_from is not None:
        prefix = await store.get_range(extent.object_name, extent.byte_from, extent.byte_from + FRAME_PREFIX - 1)
        length, checksum = _FRAME.unpack(prefix)
        if length != extent.size:
            raise MtsError("size_mismatch", "the frame has another size")
        return int(checksum)
    found = await store.find(extent.object_name)
    if found is None:
        raise MtsError("payload_missing", "the object store does not have the object")
    if found.size != extent.size:
        raise MtsError("size_mismatch", "the object has another size")
    return extent.sha256


class _Check:
    def __init__(self, expected: str | int | None) -> None:
        self._expected = expected
        self._sha256 = hashlib.sha256()
        self._crc = 0

    def feed(self, block: bytes) -> None:
        if isinstance(self._expected, int):
            self._crc = crc32(block, self._crc)
        elif self._expected is not None:
            self._sha256.update(block)

    def fits(self) -> bool:
        if isinstance(self._expected, int):
            return self._crc == self._expected
        return self._expected is None or self._sha256.hexdigest() == self._expected
