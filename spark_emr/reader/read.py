"""What one task does: the messages of its partition, with their payloads, checked, from the object store.

A pack is read once, small objects many at a time, large ones by ranges. What is missing or damaged is told for the
message it concerns; neighbours in the same pack are not.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from zlib import crc32

from minitoolstream.client._codec import decode_now
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.message import Extent, cut_extent
from minitoolstream.domain.pack import FRAME, FRAME_PREFIX
from minitoolstream.ports import PayloadStore
from spark_emr.errors import for_tasks
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.plan import Part

REFERENCE = "reference"
"""What stands in the place of a problem where a payload was left in the store for its size."""
UNVERIFIED = "unverified"
_AT_ONCE = 32
_BYTES_AHEAD = 64 * MIB
_GAP = 64 * KIB
"""Bytes of others that are read along rather than asking the store twice."""
_LONGEST_GET = 16 * MIB
_RANGE = 8 * MIB
_DECODED = 64 * MIB
"""Of decoded payloads that come at once, about: compressed ones may grow to hundreds of times their size."""
PAYLOAD_PROBLEMS = frozenset({"payload_missing", "payload_gone", "checksum_mismatch", "size_mismatch", "too_large"})

Locate = Callable[[str, int, int], Awaitable[list[Extent]]]
"""Where messages of a subject, by first and last sequence, are by now."""


@dataclass(slots=True)
class Stretch:
    """Messages of one extent. `payloads` is None when none were asked for; where one of them is None, `problems` has
    the reason by its index. `chunk` numbers the pieces of a payload that comes in several."""

    extent: Extent
    payloads: list[bytes | None] | None = field(default=None, repr=False)
    problems: dict[int, str] = field(default_factory=dict)
    chunk: int = 0


@dataclass(slots=True)
class _Get:
    """One look into the store: the bytes of an object that some extents need."""

    object_name: str
    first: int
    last: int
    extents: list[Extent]
    chunk: int | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1


async def read_parts(
    store: PayloadStore,
    parts: Iterable[Part],
    options: ReadOptions,
    locate: Locate | None = None,
    *,
    in_order: bool = False,
) -> AsyncGenerator[Stretch, None]:
    """Everything of a partition, roughly in sequence order, or exactly. With `on_missing` fail, a payload that is not
    what it should be is an error that names its sequence."""
    if in_order:
        parts = sorted(parts, key=lambda part: (part.extent.sequence, part.first_chunk))
    if not options.payload:
        for part in parts:
            yield Stretch(part.extent)
        return
    reader = _Reader(store, options, locate)
    ahead: deque[tuple[int, asyncio.Task[list[Stretch]]]] = deque()
    waiting = 0
    try:
        for planned in plan_gets(parts, options, in_order=in_order):
            size = planned.size if isinstance(planned, _Get) else 0
            while ahead and (waiting + size > _BYTES_AHEAD or len(ahead) >= _AT_ONCE):
                done, task = ahead.popleft()
                waiting -= done
                for stretch in await task:
                    for finished in reader.finished(stretch):
                        yield finished
            ahead.append((size, asyncio.ensure_future(reader.read(planned))))
            waiting += size
        while ahead:
            _, task = ahead.popleft()
            for stretch in await task:
                for finished in reader.finished(stretch):
                    yield finished
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


def plan_gets(parts: Iterable[Part], options: ReadOptions, *, in_order: bool = False) -> Iterator[_Get | Stretch]:
    """Looks into the store, and what needs none. What lies in one object is read together; `in_order`, only where its
    rows are neighbours."""
    for together in _neighbours(parts) if in_order else _by_object(parts):
        waiting: _Get | None = None
        for extent, chunk in _looked_at(together, options):
            step = _get_of(extent, chunk, options)
            if not isinstance(step, _Get):
                if waiting is not None:
                    yield waiting
                    waiting = None
                yield step
            elif waiting is not None and _joins(waiting, step):
                waiting.last = max(waiting.last, step.last)
                waiting.extents += step.extents
            else:
                if waiting is not None:
                    yield waiting
                waiting = step
        if waiting is not None:
            yield waiting


def _by_object(parts: Iterable[Part]) -> Iterable[list[Part]]:
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.extent.object_name, []).append(part)
    for together in found.values():
        together.sort(key=lambda part: (part.extent.byte_from or 0, part.first_chunk))
    return found.values()


def _neighbours(parts: Iterable[Part]) -> Iterator[list[Part]]:
    for _, together in groupby(parts, lambda part: part.extent.object_name):
        yield list(together)


def _looked_at(parts: list[Part], options: ReadOptions) -> Iterator[tuple[Extent, int | None]]:
    """Extents small enough to be read in one go, and chunks of those that are not."""
    for part in parts:
        if part.chunks:
            yield from ((part.extent, part.first_chunk + step) for step in range(part.chunks))
        elif part.extent.count == 1 or part.extent.missing or part.extent.unverified:
            yield part.extent, None
        else:
            for extent in _bites(part.extent, options.large_bytes):
                if options.chunked and extent.count == 1 and extent.size > options.large_bytes:
                    chunks = -(-extent.size // options.chunk_bytes)
                    yield from ((extent, chunk) for chunk in range(chunks))
                else:
                    yield extent, None


def _bites(extent: Extent, large: int) -> Iterator[Extent]:
    """A pack may have any size: some frames at a time, large ones alone."""
    if extent.size <= min(_LONGEST_GET, large):
        yield extent
        return
    start = extent.sequence - extent.count + 1
    first, size = start, 0
    for sequence, length in enumerate(extent.sizes or (), start):
        if sequence > first and (size + length > _LONGEST_GET or length > large or size > large):
            yield cut_extent(extent, first, sequence - 1)
            first, size = sequence, 0
        size += length
    yield cut_extent(extent, first, extent.sequence)


def _get_of(extent: Extent, chunk: int | None, options: ReadOptions) -> _Get | Stretch:
    if extent.missing:
        return _without(extent, "payload_missing", chunk)
    if extent.unverified:
        return _without(extent, UNVERIFIED, chunk)
    begin = 0 if extent.byte_from is None else extent.byte_from
    if chunk is not None:
        begin += FRAME_PREFIX if extent.byte_from is not None else 0
        first = begin + chunk * options.chunk_bytes
        last = min(first + options.chunk_bytes, begin + extent.size) - 1
        return _Get(extent.object_name, first, last, [extent], chunk)
    if extent.count == 1 and extent.size > options.large_bytes:
        return _without(extent, REFERENCE)
    return _Get(extent.object_name, begin, begin + _length(extent) - 1, [extent])


def _length(extent: Extent) -> int:
    return extent.size + (0 if extent.byte_from is None else FRAME_PREFIX * extent.count)


def _joins(one: _Get, other: _Get) -> bool:
    framed = one.extents[0].byte_from is not None and one.chunk is None and other.chunk is None
    near = one.first <= other.first <= one.last + _GAP
    return framed and near and max(one.last, other.last) - one.first < _LONGEST_GET


def _without(extent: Extent, problem: str, chunk: int | None = None) -> Stretch:
    return Stretch(extent, [None] * extent.count, dict.fromkeys(range(extent.count), problem), chunk or 0)


class _Reader:
    def __init__(self, store: PayloadStore, options: ReadOptions, locate: Locate | None) -> None:
        self._store = store
        self._options = options
        self._locate = locate

    async def read(self, planned: _Get | Stretch) -> list[Stretch]:
        return [planned] if isinstance(planned, Stretch) else await self._get(planned)

    async def _get(self, get: _Get, *, again: bool = False) -> list[Stretch]:
        try:
            body = await self._bytes(get)
        except MtsError as error:
            if error.code not in PAYLOAD_PROBLEMS:
                raise for_tasks(error, sequence=get.extents[0].sequence, object_name=get.object_name) from None
            if not again and self._locate is not None:
                return [one for extent in get.extents for one in await self._moved(extent, error.code, get.chunk)]
            if len(get.extents) > 1:  # one of them may be there all the same
                return [one for extent in get.extents for one in await self._get(_alone(extent), again=True)]
            if get.extents[0].count > 1:
                return await self._what_is_left(get.extents[0], error.code)
            return [_without(get.extents[0], error.code, get.chunk)]
        if get.chunk is not None:
            return [Stretch(get.extents[0], [body], chunk=get.chunk)]
        return [self._split(extent, body, get.first) for extent in get.extents]

    async def _what_is_left(self, extent: Extent, problem: str) -> list[Stretch]:
        """Of a pack that was cut off, the messages that lie before its end."""
        found = await self._store.find(extent.object_name)
        first, end, whole = extent.sequence - extent.count + 1, extent.byte_from or 0, 0
        for size in extent.sizes or ():
            end += FRAME_PREFIX + size
            if found is None or end > found.size:
                break
            whole += 1
        if whole in {0, extent.count}:
            return [_without(extent, problem)]
        there = await self._get(_alone(cut_extent(extent, first, first + whole - 1)), again=True)
        return [*there, _without(cut_extent(extent, first + whole, extent.sequence), problem)]

    async def _bytes(self, get: _Get) -> bytes:
        unframed, size = get.extents[0].byte_from is None, get.extents[0].size
        if unframed and get.chunk is None and get.size <= _LONGEST_GET:
            return await self._store.get_whole(get.object_name, size)
        if unframed:
            found = await self._store.find(get.object_name)
            if found is None:
                raise MtsError("payload_missing", "the object store does not have the object")
            if found.size != size:
                raise MtsError("size_mismatch", f"the object has not {size} bytes")
        if get.size <= _LONGEST_GET:
            return await self._store.get_range(get.object_name, get.first, get.last)
        ranges = [(first, min(first + _RANGE - 1, get.last)) for first in range(get.first, get.last + 1, _RANGE)]
        pieces = await asyncio.gather(*(self._store.get_range(get.object_name, *span) for span in ranges))
        return b"".join(pieces)

    async def _moved(self, extent: Extent, problem: str, chunk: int | None) -> list[Stretch]:
        """A pack is written anew when one of its messages is deleted for good, or when it is compacted: look where
        the others are now. Messages that are gone from there too are missing."""
        assert self._locate is not None
        first = extent.sequence - extent.count + 1
        now = await self._locate(extent.subject, first, extent.sequence)
        if [one.object_name for one in now] == [extent.object_name]:
            get = _get_of(extent, chunk, self._options)
            return [get] if isinstance(get, Stretch) else await self._get(get, again=True)
        found: list[Stretch] = []
        for one in now:
            get = _get_of(one, chunk, self._options)
            found += [get] if isinstance(get, Stretch) else await self._get(get, again=True)
        there = {one.extent.sequence - back for one in found for back in range(one.extent.count)}
        for sequence in range(first, extent.sequence + 1):
            if sequence not in there:
                found.append(_without(cut_extent(extent, sequence, sequence), problem, chunk))
        return found

    def _split(self, extent: Extent, body: bytes, begin: int) -> Stretch:
        stretch = Stretch(extent)
        if extent.byte_from is None:
            damaged = extent.sha256 is not None and hashlib.sha256(body).hexdigest() != extent.sha256
            payloads: list[bytes | None] = [None if damaged else body]
            if damaged:
                stretch.problems[0] = "checksum_mismatch"
        else:
            payloads = _frames(extent, body, extent.byte_from - begin, stretch.problems)
        stretch.payloads = payloads
        return stretch

    def finished(self, stretch: Stretch) -> Iterator[Stretch]:
        """Decoded and judged, when its turn has come: what is read ahead waits as it is stored, and what grows comes
        some messages at a time."""
        extent, stored = stretch.extent, stretch.payloads or []
        chunked = self._options.chunked and extent.count == 1 and extent.size > self._options.large_bytes
        if extent.codec in {None, "raw"} or not self._options.decode or chunked:
            yield self._judged(stretch)
            return
        first, begin, size = extent.sequence - extent.count + 1, 0, 0
        payloads: list[bytes | None] = []
        for index, payload in enumerate(stored):
            payloads.append(None if payload is None else self._decoded(stretch, index, payload))
            size += len(payloads[-1] or b"")
            if size >= _DECODED or index == len(stored) - 1:
                problems = {at - begin: why for at, why in stretch.problems.items() if begin <= at <= index}
                yield self._judged(Stretch(cut_extent(extent, first + begin, first + index), payloads, problems))
                payloads, begin, size = [], index + 1, 0

    def _decoded(self, stretch: Stretch, index: int, payload: bytes) -> bytes | None:
        extent = stretch.extent
        try:
            return decode_now(payload, extent.codec, extent.sequence - extent.count + 1 + index)
        except MtsError as error:
            stretch.problems[index] = error.code
            return None

    def _judged(self, stretch: Stretch) -> Stretch:
        """With `on_missing` fail, what is wrong with a payload ends the task."""
        if self._options.on_missing == "fail":
            for index, problem in stretch.problems.items():
                if problem not in {REFERENCE, UNVERIFIED}:
                    raise damage(stretch.extent, index, problem)
        return stretch


def damage(extent: Extent, index: int, problem: str) -> MtsError:
    """The error for a payload that is not what it should be."""
    sequence = extent.sequence - extent.count + 1 + index
    told = {
        "payload_missing": "is not in the object store",
        "payload_gone": "is not in the object store any more",
        "checksum_mismatch": f"is damaged, or not the {extent.codec or 'bytes'} that its metadata says",
        "size_mismatch": "has another size than its metadata says",
        "too_large": "grows too large when it is decompressed: read it with decode=false",
    }
    error = MtsError(problem, f"the payload of message {sequence} {told.get(problem, problem)}")
    return for_tasks(error, sequence=sequence, object_name=extent.object_name)


def _alone(extent: Extent) -> _Get:
    begin = extent.byte_from or 0
    return _Get(extent.object_name, begin, begin + _length(extent) - 1, [extent])


def _frames(extent: Extent, body: bytes, at: int, problems: dict[int, str]) -> list[bytes | None]:
    """The payload of each frame; None, and a problem, for those that are not what they should be."""
    payloads: list[bytes | None] = []
    unpack, prefix = FRAME.unpack_from, FRAME_PREFIX
    for index, size in enumerate(extent.sizes or (extent.size,)):
        length, checksum = unpack(body, at)
        at += prefix
        payload = body[at : at + size]
        at += size
        if length == size and crc32(payload) == checksum:
            payloads.append(payload)
        else:
            payloads.append(None)
            problems[index] = "checksum_mismatch"
    return payloads
