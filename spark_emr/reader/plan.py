"""Rows of metadata in, partitions for tasks out: balanced by bytes, what lies in one object together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import zstandard

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.message import Extent
from spark_emr.reader.options import ReadOptions

_ROW_COST = 256
"""What a message costs beside its payload, as bytes that could be read in that time."""
_OBJECT_COST = 32 * KIB
"""What a request to the store costs, likewise."""
_LEAST = 16 * MIB
"""Cost below which a task is not worth its start, however many could run at once."""
_PIECES = 16
"""Pieces that make up a partition: the finer they are, the better the balance."""
_MANY_ROWS = 500
_encode = msgspec.msgpack.Encoder().encode


class Part(msgspec.Struct, array_like=True, gc=False):
    """A row; or, of a payload that comes in chunks, `chunks` of them from `first_chunk` on."""

    extent: Extent
    first_chunk: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """What one task reads. `packed` are its parts; `parts()` gives them back."""

    number: int
    first_sequence: int
    last_sequence: int
    messages: int
    size: int
    packed: bytes = field(repr=False)

    def parts(self) -> list[Part]:
        return _decode_parts(zstandard.ZstdDecompressor().decompress(self.packed))


_decode_parts = msgspec.msgpack.Decoder(list[Part]).decode


@dataclass(frozen=True, slots=True)
class Hole:
    """Messages that a partition had and has no more: expired, deleted, or moved to dead letters."""

    partition: int
    messages: int
    after_sequence: int
    before_sequence: int


@dataclass(frozen=True, slots=True)
class Plan:
    partitions: list[ReadPartition]
    messages: int
    size: int
    first_sequence: int | None
    last_sequence: int | None
    holes: tuple[Hole, ...]


@dataclass(slots=True)
class _Piece:
    rows: list[bytes] = field(default_factory=list)
    cost: int = 0
    messages: int = 0
    size: int = 0
    first: int = 0
    last: int = 0
    object_name: str = ""


_MOST_HOLES = 1000


class Planner:
    """Takes rows in sequence order. Holds some 200 bytes for each, so that ranges of millions fit."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pieces: list[_Piece] = [_Piece()]
        self._by_object: dict[int, _Piece] = {}
        # Who says how many tasks there are to be gets as many, if there are as many objects.
        self._piece_cost = 1 if options.partitions else max(options.partition_bytes // _PIECES, 1)
        self._next_offset: dict[int, tuple[int, int]] = {}
        self._holes: list[Hole] = []

    def add(self, extents: Iterable[Extent]) -> None:
        """One loop with few calls: of single messages there are millions of rows."""
        options, next_offset, last = self._options, self._next_offset, self._pieces[-1]
        payload, chunked, large = options.payload, options.chunked, options.large_bytes
        for extent in extents:
            sequence, count, size = extent.sequence, extent.count, extent.size
            offset, name = extent.offset, extent.object_name
            known = next_offset.get(extent.partition)
            if known is not None and offset - count + 1 > known[0]:
                hole = Hole(extent.partition, offset - count + 1 - known[0], known[1], sequence - count + 1)
                self._add_hole(hole)
            next_offset[extent.partition] = (offset + 1, sequence)
            stays = count == 1 and size > large
            if stays and chunked and not extent.missing:
                last = self._add_chunks(extent)
                continue
            piece = last if last.object_name == name else self._piece_for(extent)
            cost = _ROW_COST * (count + 1)
            if payload and not stays:
                cost += size if piece.object_name == name else size + _OBJECT_COST
            if not piece.rows:
                piece.first = sequence - count + 1
            piece.rows.append(_encode((extent,)))
            piece.cost += cost
            piece.messages += count
            piece.size += size
            piece.last = sequence
            piece.object_name = name
            last = self._pieces[-1]

    def finish(self, parallelism: int = 1) -> Plan:
        """`parallelism`: tasks that can run at once; few of them get nothing to do when there is enough."""
        pieces = [piece for piece in self._pieces if piece.rows]
        partitions = [_packed(number, group) for number, group in enumerate(self._groups(pieces, parallelism))]
        return Plan(
            partitions,
            sum(piece.messages for piece in pieces),
            sum(piece.size for piece in pieces),
            min((piece.first for piece in pieces), default=None),
            max((piece.last for piece in pieces), default=None),
            tuple(self._holes),
        )

    def _add_hole(self, hole: Hole) -> None:
        if self._options.on_hole == "fail":
            raise MtsError(
                "payload_gone",
                f"{hole.messages} messages of partition {hole.partition} between the sequences {hole.after_sequence} "
                f"and {hole.before_sequence} are gone: they expired, were deleted, or are dead letters",
                {"sequence": hole.after_sequence + 1, "messages": hole.messages},
            )
        if len(self._holes) < _MOST_HOLES:
            self._holes.append(hole)

    def _piece_for(self, extent: Extent) -> _Piece:
        """That of its object, when a row of the same pack is planned already: it is read once."""
        last = self._pieces[-1]
        packed = self._options.payload and extent.byte_from is not None
        key = hash(extent.object_name) if packed else 0
        if packed and (found := self._by_object.get(key)) is not None:
            return found
        if last.cost >= self._piece_cost or len(last.rows) >= _MANY_ROWS:
            last = _Piece()
            self._pieces.append(last)
        if packed:
            self._by_object[key] = last
        return last

    def _add_chunks(self, extent: Extent) -> _Piece:
        """Returns the piece for what comes next."""
        size, sequence = self._options.chunk_bytes, extent.sequence
        total = -(-extent.size // size)
        at_once = max(self._piece_cost // size, 1)
        for first in range(0, total, at_once):
            chunks = min(at_once, total - first)
            read = min(chunks * size, extent.size - first * size)
            row, cost = _encode((extent, first, chunks)), read + _OBJECT_COST * chunks
            self._pieces.append(
                _Piece([row], cost, 1 if first == 0 else 0, read, sequence, sequence, extent.object_name)
            )
        self._pieces.append(_Piece())
        return self._pieces[-1]

    def _groups(self, pieces: list[_Piece], parallelism: int) -> Iterator[list[_Piece]]:
        """Neighbours together, each group as near to its share of the whole cost as pieces allow."""
        total = sum(piece.cost for piece in pieces)
        wanted = self._options.partitions or max(
            -(-total // self._options.partition_bytes), min(parallelism, total // _LEAST), 1
        )
        wanted = min(wanted, len(pieces))
        group: list[_Piece] = []
        done = made = 0
        for piece in pieces:
            share = total * (made + 1) / wanted
            if group and made + 1 < wanted and done + piece.cost / 2 > share:
                yield group
                group, made = [], made + 1
            group.append(piece)
            done += piece.cost
        if group:
            yield group


def _packed(number: int, pieces: list[_Piece]) -> ReadPartition:
    rows = [row for piece in pieces for row in piece.rows]
    header = b"\xdd" + len(rows).to_bytes(4, "big")  # a msgpack array of so many
    return ReadPartition(
        number,
        min(piece.first for piece in pieces),
        max(piece.last for piece in pieces),
        sum(piece.messages for piece in pieces),
        sum(piece.size for piece in pieces),
        zstandard.ZstdCompressor(level=1).compress(header + b"".join(rows)),
    )
