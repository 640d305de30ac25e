"""The way back: a snapshot's file, then the journal on top of it, then the ceiling (rules 28 to 30)."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from minitoolstream.domain.backup import MANIFEST, Manifest, check_piece, ids_of, read_manifest
from minitoolstream.domain.ceiling import highest, next_ceiling
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.journal import Segment, SegmentName, decode, newest_checkpoint, segments_of
from minitoolstream.domain.keys import CEILING_PREFIX, JOURNAL_PREFIX
from minitoolstream.services.backup_places import BackupPlace
from minitoolstream.services.compare_bucket import compare_bucket
from minitoolstream.services.core import Core
from minitoolstream.services.delete_again import delete_again
from minitoolstream.services.manage_retention import apply_settings
from minitoolstream.services.progress import Progress, silent
from minitoolstream.services.raise_ceiling import announce
from minitoolstream.services.sweep_expired import sweep_expired
from minitoolstream.services.system_objects import list_all

_ROWS_AT_ONCE = 1000
_AHEAD = 16

BEFORE_SERVING: tuple[Callable[[Core], Awaitable[object]], ...] = (delete_again, apply_settings, sweep_expired)
"""What must have happened before a restored store serves anyone (rule 30). Runs when all rows are there and nothing is
published yet."""


@dataclass(slots=True)
class Restored:
    """What came back and what did not. Sequences above `last_sequence` and up to `continues_behind` may have been given
    to messages that are lost; none of them is given again."""

    segments: int = 0
    extents: int = 0
    last_sequence: int = 0
    journal_until: int | None = None
    continues_behind: int = 0
    uploads_held: int = 0
    dropped: list[tuple[int, str]] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    damaged_ranges: list[tuple[int, int]] = field(default_factory=list)


async def find_backup(place: BackupPlace, backup: str | None) -> Manifest:
    """The backup of this id, or the newest."""
    whole, _ = ids_of(await place.names())
    if not whole:
        hint = "`mts rebuild` makes the metadata from the bucket alone"
        raise MtsError("not_found", "there is no backup", {"hint": hint})
    if backup is not None and backup not in whole:
        details = {"backups": whole, "hint": "`mts backup ls` lists them"}
        raise MtsError("not_found", f"there is no backup {backup}", details)
    chosen = backup or whole[-1]
    return read_manifest(chosen, await place.get(f"{chosen}/{MANIFEST}"))


async def fetch_snapshot(place: BackupPlace, manifest: Manifest, folder: Path, progress: Progress = silent) -> Path:
    """The snapshot's file in a folder, whole or not at all."""
    unfinished, path = folder / f"{manifest.snapshot}.part", folder / manifest.snapshot
    await asyncio.to_thread(_begin_file, unfinished)
    for number, piece in enumerate(manifest.pieces, 1):
        content = check_piece(manifest.id, piece, await place.get(f"{manifest.id}/{piece.name}"))
        await asyncio.to_thread(_append, unfinished, content)
        progress(f"getting the snapshot: {number} of {len(manifest.pieces)} pieces")
    await asyncio.to_thread(unfinished.replace, path)
    return path


def _begin_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


async def replay_journal(
    core: Core, *, rebuild: bool, skip_damaged: bool = False, progress: Progress = silent
) -> Restored:
    """Bring a store that was started from a snapshot, or for a rebuild an empty one, to the journal's end.

    Safe to run again from its start. Until it has ended, nothing is published; orphans stay until someone adopts or
    discards them.
    """
    position = await core.journal.position()
    if rebuild and position.given and position.recovery != "replaying":
        raise MtsError("recovery_conflict", "this Tarantool holds messages: a rebuild begins with an empty one")
    if position.recovery == "pending":
        raise MtsError(
            "recovery_conflict",
            "this Tarantool is restored already",
            {"hint": "`mts restore --adopt` or `--discard` ends it"},
        )
    listed = await list_all(core.payloads, JOURNAL_PREFIX)
    sizes = {info.name: info.size for info in listed}
    segments = segments_of(sizes)
    later = [segment for segment in segments if rebuild or segment.number > position.number]
    checkpoint = await _whole_checkpoint(core, later, sizes) if skip_damaged else newest_checkpoint(later)
    await core.restores.begin_restore(anew=rebuild or checkpoint is not None)
    restored = Restored()
    async for name, segment in _read_all(core, later, sizes, restored, skip_damaged=skip_damaged):
        with_side = checkpoint is None or name.number >= checkpoint.number
        await _apply(core, segment, with_side=with_side)
        restored.segments += 1
        restored.journal_until = segment.at
        progress(f"replaying: segment {restored.segments} of {len(later)}, sequence {segment.upto}")
    if rebuild:
        await _drop_missing(core, restored, progress)
    progress("counting")
    settled = await core.restores.settle(_told(later, checkpoint, restored))
    restored.extents, restored.uploads_held = settled.extents, settled.held
    for step in BEFORE_SERVING:
        await step(core)
    newest = max([segment.number for segment in segments] + [position.number])
    await _finish(core, restored, newest)
    comparison = await compare_bucket(core, progress)
    restored.orphans = comparison.orphans
    restored.missing = await _set_apart(core, comparison.missing)
    return restored


async def _read(core: Core, name: SegmentName, sizes: Mapping[str, int]) -> Segment:
    content = await core.payloads.get_range(name.name, 0, sizes[name.name] - 1) if sizes[name.name] else b""
    return await asyncio.to_thread(decode, name.name, content)


async def _whole_checkpoint(
    core: Core, segments: Sequence[SegmentName], sizes: Mapping[str, int]
) -> SegmentName | None:
    """The newest checkpoint that can be read to its end: one that is damaged must not take the place of what is known
    without it."""
    while found := newest_checkpoint(segments):
        try:
            for name in segments[segments.index(found) :]:
                await _read(core, name, sizes)
                if name.complete:
                    return found
        except MtsError as error:
            if error.code != "checksum_mismatch":
                raise
        segments = segments[: segments.index(found)]
    return None


def _told(segments: Sequence[SegmentName], checkpoint: SegmentName | None, restored: Restored) -> int:
    """The last sequence up to which the journal has told of every subject: what has none there was deleted."""
    if checkpoint is None or restored.damaged:
        return 0
    return max(segment.upto for segment in segments if segment.complete and segment.number >= checkpoint.number)


async def _read_all(
    core: Core, names: Sequence[SegmentName], sizes: dict[str, int], restored: Restored, *, skip_damaged: bool
) -> AsyncIterator[tuple[SegmentName, Segment]]:
    """Segments in their order, some read ahead."""

    left = iter(names)
    reading = deque((name, asyncio.create_task(_read(core, name, sizes))) for name in islice(left, _AHEAD))
    try:
        while reading:
            name, task = reading.popleft()
            try:
                segment = await task
            except MtsError as error:
                if error.code != "checksum_mismatch" or not skip_damaged:
                    raise
                restored.damaged.append(name.name)
                restored.damaged_ranges.append((name.after + 1, name.upto))
            else:
                yield name, segment
            reading.extend((name, asyncio.create_task(_read(core, name, sizes))) for name in islice(left, 1))
    finally:
        for _, task in reading:
            task.cancel()
        await asyncio.gather(*(task for _, task in reading), return_exceptions=True)


async def _apply(core: Core, segment: Segment, *, with_side: bool) -> None:
    rows, side = segment.rows, segment.side if with_side else []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        await core.restores.apply(rows[start : start + _ROWS_AT_ONCE], [], [])
    for start in range(0, len(side), _ROWS_AT_ONCE):
        await core.restores.apply([], side[start : start + _ROWS_AT_ONCE], [])
    for start in range(0, len(segment.removed), _ROWS_AT_ONCE):
        await core.restores.apply([], [], segment.removed[start : start + _ROWS_AT_ONCE])


async def _drop_missing(core: Core, restored: Restored, progress: Progress) -> None:
    """A journal that goes back further than any backup may know messages whose payloads are long gone."""
    restored.dropped = (await compare_bucket(core, progress)).missing
    sequences = [sequence for sequence, _ in restored.dropped]
    for start in range(0, len(sequences), _ROWS_AT_ONCE):
        await core.restores.drop(sequences[start : start + _ROWS_AT_ONCE])


async def _set_apart(core: Core, missing: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Readers of a message without payload are told so. What was published since the bucket was listed has one."""
    lost = [(sequence, name) for sequence, name in missing if await core.payloads.find(name) is None]
    for start in range(0, len(lost), _ROWS_AT_ONCE):
        some = lost[start : start + _ROWS_AT_ONCE]
        await core.audit.quarantine([(sequence, name, "missing") for sequence, name in some])
    return lost


async def _finish(core: Core, restored: Restored, newest: int) -> None:
    names = [found.name for found in await list_all(core.payloads, CEILING_PREFIX)]
    base = max(highest(names), (await core.journal.position()).given)
    if not names:
        base = next_ceiling(base)  # nobody knows how far it had come
    top = next_ceiling(base)
    await announce(core.journal, core.payloads, top)
    restored.last_sequence = await core.restores.finish_restore(base, top, newest, restored.journal_until or 0)
    restored.continues_behind = base
