"""A payload of any size, block by block, in little memory."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Iterator
from zlib import crc32

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME, FRAME_PREFIX
from minitoolstream.ports import BlockReader
from spark_emr.reader.read import damage

_RANGE = 32 * MIB
_RANGES = 2
"""Under way at a time: while one is read, the next one fills the buffers of its connection."""


def stored_blocks(reader: BlockReader, extent: Extent, *, checksum: bool = True) -> Generator[bytes]:
    """The stored payload of an extent of one message. When its checksum does not fit, the last block is followed by an
    error with its sequence; without `checksum` it is not computed, which for large payloads is a good part of the
    time."""
    assert extent.count == 1, "payloads are streamed one by one"
    try:
        check = _Check(_expected(reader, extent) if checksum else None)
        for block in _in_order(reader, extent):
            check.feed(block)
            yield block
    except MtsError as error:
        if error.code in {"payload_missing", "size_mismatch"}:
            raise damage(extent, 0, error.code) from None
        raise
    if not check.fits():
        raise damage(extent, 0, "checksum_mismatch")


def _in_order(reader: BlockReader, extent: Extent) -> Iterator[bytes]:
    begin, size = (0, extent.size) if extent.byte_from is None else (extent.byte_from + FRAME_PREFIX, None)
    end = begin + extent.size
    firsts = deque(range(begin, end, _RANGE))
    coming: deque[Generator[bytes]] = deque()
    try:
        while firsts or coming:
            while firsts and len(coming) < _RANGES:
                first = firsts.popleft()
                coming.append(reader.blocks(extent.object_name, first, min(first + _RANGE, end) - 1, size=size))
            yield from coming[0]
            coming.popleft()
    finally:
        for blocks in coming:
            blocks.close()


def _expected(reader: BlockReader, extent: Extent) -> str | int | None:
    """SHA-256 of a whole object, when it is known, or CRC-32 of a frame."""
    if extent.byte_from is None:
        return extent.sha256
    last = extent.byte_from + FRAME_PREFIX - 1
    length, checksum = FRAME.unpack(b"".join(reader.blocks(extent.object_name, extent.byte_from, last)))
    if length != extent.size:
        raise MtsError("size_mismatch", "the frame has another size")
    return int(checksum)


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
