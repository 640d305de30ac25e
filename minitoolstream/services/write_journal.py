"""Write to the bucket what changed since the last round (rule 29), off the way of any publish."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.journal import SEGMENT_TYPE, Segment, encode, newest_checkpoint, segment_name, segments_of
from minitoolstream.domain.keys import JOURNAL_PREFIX
from minitoolstream.services.core import Core
from minitoolstream.services.merge_segments import merge_segments
from minitoolstream.services.system_objects import list_all

_ROWS_AT_ONCE = 2000
_STEPS_A_SEGMENT = 8
_CHECKPOINT_EVERY_MS = 86_400_000
_RANGES_AT_ONCE = 1000
_SEQUENCE, _COUNT = 0, 7  # of a message row
_TRIES = 50
_PAUSE = 0.2


@dataclass(slots=True)
class Written:
    """What one round wrote. `complete`: the bucket holds all there was when it ended."""

    segments: int = 0
    rows: int = 0
    removed: int = 0
    complete: bool = True

    def counts(self) -> dict[str, int]:
        return {"segments": self.segments, "rows": self.rows, "removed": self.removed}


async def write_journal(core: Core) -> Written:
    """One round, if there is anything to write; old segments go after a checkpoint. Safe beside any other: of two
    writers at once one gives up, and what it read is read again. MtsError `unavailable` while the store is older than
    its bucket: what it would write stands behind what it does not know."""
    lag = await core.journal.journal_lag()
    # Also when the last one seems to come yet: the clock stood ahead then.
    checkpoint = not 0 <= await core.clock.now_ms() - lag.checkpoint_at < _CHECKPOINT_EVERY_MS
    written = Written()
    try:
        await core.ceiling.keep()
        if lag.behind or lag.waiting or checkpoint:
            written = await _Round(core, lag.upto, checkpoint=checkpoint).write()
        if checkpoint and written.complete:
            written.removed = await prune_journal(core)
    finally:
        lag = await core.journal.journal_lag()
        core.metrics.gauge("journal_behind", lag.behind)
        core.metrics.gauge("journal_behind_seconds", lag.seconds)
    return written


async def finish_journal(core: Core) -> None:
    """A round of the journal that was read from now on and is complete. Rows of a segment that was read before a
    snapshot and not confirmed may be older than it: this one stands behind them."""
    for _ in range(_TRIES):
        if (await write_journal(core)).complete:
            return
        await asyncio.sleep(_PAUSE)  # another host writes; the next try finds what it left
    raise unavailable("the journal cannot be written to its end now; try again")


class _Round:
    def __init__(self, core: Core, after: int, *, checkpoint: bool) -> None:
        self._core = core
        self._after = after
        self._checkpoint = checkpoint
        self._seen: int | None = None
        self._written = Written(complete=False)
        self._clear()

    def _clear(self) -> None:
        self._rows: list[list[Any]] = []
        self._side: list[list[Any]] = []
        self._removed: list[int] = []
        self._holes: list[int] = []
        self._steps = 0

    async def write(self) -> Written:
        position: Mapping[str, Any] | None = None
        while True:
            step = await self._core.journal.read_journal(position, _ROWS_AT_ONCE, checkpoint=self._checkpoint)
            position = step.position
            self._seen = position["number"] if self._seen is None else self._seen
            self._rows += step.rows
            self._side += step.side
            self._removed += step.removed
            self._holes += step.holes
            self._steps += 1
            if step.complete or self._steps >= _STEPS_A_SEGMENT:
                if not await self._put(position, complete=step.complete):
                    return self._written
                if step.complete:
                    self._written.complete = True
                    return self._written

    async def _put(self, position: Mapping[str, Any], *, complete: bool) -> bool:
        """False when another writer was faster."""
        core = self._core
        assert self._seen is not None
        number = await core.journal.plan_segment(self._seen)
        if number is None:
            return False
        segment = Segment(
            number=number,
            after=self._begins_behind(),
            upto=position["from"],
            at=await core.clock.now_ms(),
            checkpoint=position["checkpoint"],
            complete=complete,
            rows=self._rows,
            side=self._side,
            removed=self._removed,
        )
        body = await asyncio.to_thread(encode, segment)
        await _store(core, segment_name(segment), body)
        if not await core.journal.ack_segment(number, position, complete=complete):
            return False
        self._seen, self._after = number, segment.upto
        self._written.segments += 1
        self._written.rows += len(self._rows) + len(self._side)
        self._clear()
        return True

    def _begins_behind(self) -> int:
        """Messages that changed since stand in it too, and those that went from among others: it must stay as long as
        what stood beside them."""
        changed = (int(row[_SEQUENCE]) - int(row[_COUNT]) for row in self._rows)
        return min([self._after, *changed, *(sequence - 1 for sequence in self._holes)])


async def _store(core: Core, name: str, body: bytes) -> None:
    """What is there already is this, of a try whose answer was lost. Anything else is of another store's journal."""
    try:
        await core.payloads.put_new(name, body, content_type=SEGMENT_TYPE)
    except MtsError as error:
        if error.code != "already_exists" or not await _holds(core, name, body):
            raise


async def _holds(core: Core, name: str, body: bytes) -> bool:
    found = await core.payloads.find(name)
    return found is not None and found.size == len(body) and await core.payloads.get_whole(name, len(body)) == body


async def prune_journal(core: Core) -> int:
    """Delete segments that a restore can do without: all their messages are gone, and a later checkpoint holds the
    rest. Those that stay are put together. Returns how many went."""
    sizes = {found.name: found.size for found in await list_all(core.payloads, JOURNAL_PREFIX)}
    segments = segments_of(sizes)
    checkpoint = newest_checkpoint(segments)
    if checkpoint is None:
        return 0
    old = [segment for segment in segments if segment.number < checkpoint.number]
    gone, kept = 0, []
    for start in range(0, len(old), _RANGES_AT_ONCE):
        some = old[start : start + _RANGES_AT_ONCE]
        living = await core.journal.living([(segment.after, segment.upto) for segment in some])
        names = [segment.name for segment, lives in zip(some, living, strict=True) if not lives]
        gone += len(await core.payloads.delete_many(names)) if names else 0
        kept += [segment for segment, lives in zip(some, living, strict=True) if lives]
    return gone + await merge_segments(core, kept, sizes)
