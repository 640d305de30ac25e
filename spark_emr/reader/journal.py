"""Rows from the journal in the bucket (rule 29), so that a large replay puts no load on Tarantool.

The journal is some seconds behind. It is read as a restore reads it: of rows with the same key the later one counts,
what was removed is gone, and so is what lies before the head of its partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.journal import Segment, SegmentName, decode, newest_checkpoint, segments_of
from minitoolstream.domain.keys import JOURNAL_PREFIX
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK
from minitoolstream.domain.message import Extent, cut_extent
from minitoolstream.ports import PayloadStore
from spark_emr.reader.options import ReadOptions

_AHEAD = 16
_TRIES = 3
_EVERYTHING = 2**31
_SUBJECT = 3  # field of a message row
_FIRST_SEQUENCE = 5  # field of a subject row


async def journal_rows(store: PayloadStore, options: ReadOptions) -> list[Extent]:
    """The subject's extents in the range, in order. Segments that went into another between a look and the read are
    looked for again."""
    for _ in range(_TRIES - 1):
        try:
            return await _rows_now(store, options)
        except MtsError as error:
            if error.code != "payload_missing":
                raise
    return await _rows_now(store, options)


async def _rows_now(store: PayloadStore, options: ReadOptions) -> list[Extent]:
    sizes = {found.name: found.size for found in await store.list_after(JOURNAL_PREFIX, "", _EVERYTHING)}
    segments = segments_of(sizes)
    if not segments:
        raise MtsError("not_found", "there is no journal in this bucket: let the plan come from Tarantool")
    end = max(segment.upto for segment in segments)
    if options.to_sequence is not None and options.to_sequence > end:
        raise bad_request(
            f"toSequence {options.to_sequence} is behind {end}, the end of the journal, which is some seconds behind: "
            "try again, or let the plan come from Tarantool"
        )
    state = _State(options, end)
    checkpoint = newest_checkpoint(segments)
    least = checkpoint.number if checkpoint else 0
    # A row that begins in the range may end so far behind it, and what became of it stands by its end.
    last = state.last + MAX_MESSAGES_PER_PACK
    wanted = [one for one in segments if one.number >= least or (one.after < last and one.upto >= state.first)]
    async for name, segment in _read_all(store, wanted, sizes):
        state.apply(segment, with_side=name.number >= least)
    return state.extents()


class _State:
    def __init__(self, options: ReadOptions, end: int) -> None:
        self._options = options
        self.first = max(options.from_sequence, 1)
        self.last = end if options.to_sequence is None else options.to_sequence
        self._rows: dict[int, list[Any]] = {}
        self._heads: dict[int, int] = {}
        self._begins = 0
        self._known = False

    def apply(self, segment: Segment, *, with_side: bool) -> None:
        subject, first, last = self._options.subject, self.first, self.last
        for row in segment.rows:
            if row[_SUBJECT] == subject and row[0] >= first and row[0] - row[7] < last:
                self._rows[row[0]] = row
            else:  # it may have lain in the range before some of its messages were deleted
                self._rows.pop(row[0], None)
        for entry in segment.side if with_side else ():
            self._apply_side(*entry)
        for sequence in segment.removed:
            self._rows.pop(sequence, None)

    def _apply_side(self, space: str, row: Any, key: Any = None, head: Any = None) -> None:
        """A row, or the key of one that is gone, which ends there."""
        if space not in {"subject", "partition"} or (row or key)[0] != self._options.subject:
            return
        if space == "subject":
            self._known = row is not None
            self._begins = (row[_FIRST_SEQUENCE] or 0) if row is not None and len(row) > _FIRST_SEQUENCE else 0
        elif row is not None and head is not None:
            self._heads[row[1]] = head

    def extents(self) -> list[Extent]:
        if not self._known:  # rows of one that was deleted may stand there until they are merged away
            raise MtsError(
                "unknown_subject",
                f"the journal knows no subject {self._options.subject}",
                {"subject": self._options.subject},
            )
        rows = (Extent(*self._rows[key]) for key in sorted(self._rows))
        return [cut_extent(row, self.first, self.last) for row in rows if self._wants(row)]

    def _wants(self, row: Extent) -> bool:
        options = self._options
        return (
            (options.partition is None or row.partition == options.partition)
            and row.sequence >= max(self._begins, self._heads.get(row.partition, 0))
            and (options.from_time is None or row.create_at >= options.from_time)
            and (options.to_time is None or row.create_at < options.to_time)
        )


async def _read_all(
    store: PayloadStore, names: Sequence[SegmentName], sizes: dict[str, int]
) -> AsyncIterator[tuple[SegmentName, Segment]]:
    """Segments in their order, some read ahead."""

    async def read(name: SegmentName) -> Segment:
        content = await store.get_range(name.name, 0, sizes[name.name] - 1)
        return await asyncio.to_thread(decode, name.name, content)

    left = iter(names)
    reading = deque((name, asyncio.ensure_future(read(name))) for name in islice(left, _AHEAD))
    try:
        while reading:
            name, task = reading.popleft()
            yield name, await task
            reading.extend((name, asyncio.ensure_future(read(name))) for name in islice(left, 1))
    finally:
        for _, task in reading:
            task.cancel()
