"""Many small objects become one pack: which rows belong together, and what the pack looks like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME, FRAME_PREFIX, write_head

MOST_ROWS = 500
"""Rows that one transaction moves."""
PACK_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class RowMove:
    """A row as it was read, and the first byte of its frames in the new pack."""

    extent: Extent
    first: int

    @property
    def span(self) -> tuple[int, int]:
        """First byte and number of bytes that the row has now."""
        found = self.extent.byte_range
        return (0, self.extent.size) if found is None else (found[0], found[1] - found[0] + 1)


def worth_moving(
    extents: Iterable[Extent], small: int, seconds: int, pack_bytes: int = PACK_BYTES
) -> Iterator[list[Extent]]:
    """Groups of rows, each to become a pack: small ones that have an object each, in the order of their sequences.

    What is in one pack goes when the last of it does, so it lies at most `seconds` apart.
    """
    rows = list(extents)
    in_object: dict[str, int] = {}
    for row in rows:
        in_object[row.object_name] = in_object.get(row.object_name, 0) + 1
    group: list[Extent] = []
    size = 0
    for row in rows:
        if row.size > small or row.missing or row.unverified or in_object[row.object_name] > 1:
            continue
        full = len(group) >= MOST_ROWS or size + row.size > pack_bytes
        if group and (full or row.create_at - group[0].create_at > seconds):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(row)
        size += row.size
    if len(group) > 1:
        yield group


def build_compacted(rows: Sequence[tuple[Extent, bytes]]) -> tuple[list[bytes], list[RowMove]]:
    """The pack's body, and where each row lies in it. Bytes are those of the row's span: a whole payload, or frames.

    Its head names no messages: until its rows point there it holds copies, which a restore must not take for messages.
    """
    head = write_head([])
    body, moves, position = [head], [], len(head)
    for extent, content in rows:
        moves.append(RowMove(extent, position))
        if extent.byte_from is None:
            body.append(FRAME.pack(len(content), crc32(content)))
            position += FRAME_PREFIX
        body.append(content)
        position += len(content)
    return body, moves
