"""Where a plan's rows come from: Tarantool, or the journal in the bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from minitoolstream.domain.message import Extent, cut_extent
from minitoolstream.services.core import Core
from spark_emr.reader.journal import journal_rows
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.plan import Plan, Planner


@dataclass(frozen=True, slots=True)
class Bounds:
    """First and last sequence that are wanted; nothing when `last` is before `first`."""

    first: int
    last: int


async def make_plan(core: Core, options: ReadOptions, parallelism: int = 1) -> Plan:
    """What to read now, for a reader with these options."""
    planner = Planner(options)
    if options.plan == "journal":
        planner.add(await journal_rows(core.payloads, options))
        return await asyncio.to_thread(planner.finish, parallelism)
    async for extents in tarantool_rows(core, options, await find_bounds(core, options)):
        planner.add(extents)
    return planner.finish(parallelism)


async def find_bounds(core: Core, options: ReadOptions) -> Bounds:
    """The range that is asked for, up to what is the latest now. A subject that nobody made is an error."""
    subject = options.subject
    await core.subjects.get(subject)
    first, last = max(options.from_sequence, 1), await core.metadata.latest_sequence(subject)
    if options.to_sequence is not None:
        last = min(last, options.to_sequence)
    if options.from_time is not None:
        first = max(first, await core.metadata.sequence_at(subject, options.from_time))
    if options.to_time is not None:
        last = min(last, await core.metadata.sequence_at(subject, options.to_time) - 1)
    return Bounds(first, last)


async def tarantool_rows(core: Core, options: ReadOptions, bounds: Bounds) -> AsyncGenerator[list[Extent], None]:
    """Page by page, cut where the range begins and ends."""
    walk = core.metadata.walk_extents(options.subject, bounds.first, bounds.last, partition=options.partition)
    async with aclosing(walk):
        async for extents in walk:
            yield within(extents, bounds.first, bounds.last)


def within(extents: list[Extent], first: int, last: int) -> list[Extent]:
    """What of them lies in a range; they are in order."""
    if not extents or (extents[0].sequence - extents[0].count >= first - 1 and extents[-1].sequence <= last):
        return extents
    found = [one for one in extents if one.sequence >= first and one.sequence - one.count < last]
    return [cut_extent(one, first, last) for one in found]
