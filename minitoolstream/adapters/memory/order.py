"""The order of messages in memory, and a clock that tests move."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from minitoolstream.domain.consumer import Filter
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.ports import ExtentPage


class ManualClock:
    """Stands still until a test moves it on."""

    def __init__(self) -> None:
        self._now = time.time()

    def seconds(self) -> int:
        return int(self._now)

    def milliseconds(self) -> int:
        return int(self._now * 1000)

    def advance(self, seconds: float) -> None:
        self._now += seconds


@dataclass(slots=True)
class Lane:
    messages: int = 0
    bytes: int = 0
    next_offset: int = 0


@dataclass(slots=True)
class Order:
    """Extents by their last sequence."""

    clock: ManualClock
    rows: list[Extent] = field(default_factory=list)
    lanes: dict[str, Lane] = field(default_factory=dict)
    watermark: int = 0
    missing: set[int] = field(default_factory=set)
    on_append: Callable[[str], None] = lambda _subject: None

    def lane(self, subject: str) -> Lane:
        return self.lanes.setdefault(subject, Lane())

    def append(
        self,
        subject: str,
        object_name: str,
        sizes: list[int],
        *,
        headers: Mapping[str, str],
        content_type: str,
        byte_from: int | None = None,
        own: list[list[Any]] | None = None,
        sha256: str | None = None,
        codec: str | None = None,
        keep_sizes: bool = False,
    ) -> int:
        """The sequence of the first message of a new extent."""
        lane = self.lane(subject)
        count, size = len(sizes), sum(sizes)
        first = self.watermark + 1
        self.watermark += count
        lane.messages += count
        lane.next_offset += count
        lane.bytes += size
        self.rows.append(
            Extent(
                sequence=self.watermark,
                headers=dict(headers),
                object_name=object_name,
                subject=subject,
                create_at=self.clock.seconds(),
                partition=0,
                offset=lane.next_offset - 1,
                count=count,
                size=size,
                byte_from=byte_from,
                sizes=list(sizes) if count > 1 or keep_sizes else None,
                own=own or None,
                content_type=content_type,
                sha256=sha256,
                codec=codec,
            )
        )
        self.on_append(subject)
        return first

    def locate(self, sequence: int) -> tuple[Extent, int] | None:
        """The extent that holds a sequence, and the message's index in it."""
        at = bisect_left(self.rows, sequence, key=lambda row: row.sequence)
        if at == len(self.rows):
            return None
        first = self.rows[at].sequence - self.rows[at].count + 1
        return (self.rows[at], sequence - first) if sequence >= first else None

    def get(self, sequence: int) -> Extent | None:
        found = self.locate(sequence)
        return _slice(self._marked(found[0]), found[1], 1) if found else None

    def _marked(self, row: Extent) -> Extent:
        return replace(row, missing=True) if row.sequence in self.missing else row

    def drop(self, row: Extent) -> None:
        """Its payload is the caller's to care for."""
        self._settle(row, [row], [])

    def cut_out(self, row: Extent, index: int) -> tuple[Extent, int]:
        """The message as a row, and how many rows are left of the extent."""
        behind = row.count - index - 1
        gone = _slice(row, index, 1)
        parts = [_slice(row, 0, index)] if index else []
        parts += [_slice(row, index + 1, behind)] if behind else []
        self._settle(row, [gone], parts)
        return gone, len(parts)

    def _settle(self, row: Extent, gone: list[Extent], parts: list[Extent]) -> None:
        at = bisect_left(self.rows, row.sequence, key=lambda one: one.sequence)
        self.rows[at : at + 1] = parts
        if row.sequence in self.missing:
            self.missing.discard(row.sequence)
            self.missing.update(part.sequence for part in parts)
        lane = self.lane(row.subject)
        lane.messages -= sum(one.count for one in gone)
        lane.bytes -= sum(one.size for one in gone)

    def move(self, key: int, object_name: str, byte_from: int) -> None:
        at = bisect_left(self.rows, key, key=lambda one: one.sequence)
        self.rows[at] = replace(self.rows[at], object_name=object_name, byte_from=byte_from, sha256=None)

    def points_at(self, sequence: int | None, object_name: str) -> bool:
        found = self.locate(sequence) if sequence is not None else None
        return found is not None and found[0].object_name == object_name

    def latest(self, subject: str) -> int:
        return max((row.sequence for row in self.rows if row.subject == subject), default=0)

    def at(self, subject: str, seconds: int) -> int:
        """The first sequence of the extent that became visible then or later."""
        since = (row for row in self.rows if row.subject == subject and row.create_at >= seconds)
        return next((row.sequence - row.count + 1 for row in since), self.watermark + 1)

    def page(
        self, subject: str, start: int, limit: int, *, partition: int | None, whole: bool, conditions: Filter = ()
    ) -> ExtentPage:
        wanted = [row for row in self.rows if row.subject == subject and row.sequence >= start and not partition]
        if conditions:
            wanted = [_slice(row, at, 1) for row in wanted for at in range(row.count) if _fits(row, at, conditions)]
        extents: list[Extent] = []
        left, following = limit, self.watermark + 1
        for row in wanted:
            if left <= 0:
                following = extents[-1].sequence + 1
                break
            skipped = max(start - (row.sequence - row.count + 1), 0)
            count = row.count - skipped
            if count <= 0:
                continue
            taken = count if whole else min(count, left)
            extents.append(_slice(self._marked(row), skipped, taken))
            if taken < count:
                following = extents[-1].sequence + 1
                break
            left -= count
        return ExtentPage(extents, following, self.latest(subject), self.watermark)


def _fits(row: Extent, index: int, conditions: Filter) -> bool:
    own = next((entry[1] for entry in row.own or () if entry[0] == index), None)
    headers = row.headers if own is None else own
    for one in conditions:
        value = headers.get(one.header)
        if value is None or not (value == one.value if one.op == "equals" else value.startswith(one.value)):
            return False
    return True


def _slice(row: Extent, skipped: int, count: int) -> Extent:
    if count == row.count:
        return row
    assert row.sizes is not None
    assert row.byte_from is not None
    behind = row.count - skipped - count
    sizes = row.sizes[skipped : skipped + count]
    own = [[entry[0] - skipped, *entry[1:]] for entry in row.own or () if 0 <= entry[0] - skipped < count]
    return replace(
        row,
        sequence=row.sequence - behind,
        offset=row.offset - behind,
        count=count,
        size=sum(sizes),
        byte_from=row.byte_from + sum(size + FRAME_PREFIX for size in row.sizes[:skipped]),
        sizes=sizes if count > 1 else None,
        own=own or None,
    )
