"""Memory that the workers share: each writes what it counted into its own slot, every one may read them all.

prometheus_client's multiprocess mode would do it with a file a process and metric: a locked write for each
count, files of dead processes that pile up with every restart, and a variable in the environment that must be
set before the import. Here counting stays in the process (half a microsecond a request) and a slot outlives its worker.
"""

from __future__ import annotations

import mmap
import struct
from zlib import crc32

_HEAD = struct.Struct("=QII")
SLOT_BYTES = 512 * 1024
_HALF = SLOT_BYTES // 2


class Board:
    """Make it before the workers are forked. A slot has two halves: what was last written in full stays
    readable while its owner writes anew, or when it dies in the middle."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._memory = mmap.mmap(-1, slots * SLOT_BYTES)

    def write(self, slot: int, content: bytes) -> None:
        if len(content) > _HALF - _HEAD.size:
            raise ValueError(f"{len(content)} bytes of counters are more than a slot holds")
        version, at, _ = max(self._halves(slot), default=(0, slot * SLOT_BYTES + _HALF, b""))
        other = slot * SLOT_BYTES + (_HALF if at % SLOT_BYTES == 0 else 0)
        self._memory[other + _HEAD.size : other + _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._memory, other, version + 1, len(content), crc32(content))

    def read(self, slot: int) -> bytes:
        """What the slot's owner wrote last; empty when nothing yet."""
        return max(self._halves(slot), default=(0, 0, b""))[2]

    def _halves(self, slot: int) -> list[tuple[int, int, bytes]]:
        """(version, where, content) of each half that is whole."""
        found = []
        for at in (slot * SLOT_BYTES, slot * SLOT_BYTES + _HALF):
            version, length, checksum = _HEAD.unpack_from(self._memory, at)
            content = self._memory[at + _HEAD.size : at + _HEAD.size + min(length, _HALF)]
            if version and crc32(content) == checksum:
                found.append((version, at, content))
        return found
