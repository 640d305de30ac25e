"""Many small segments become few: at one every 5 s, a year would have millions to read in a rebuild."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.journal import (
    SEGMENT_TYPE,
    Segment,
    SegmentName,
    decode,
    encode,
    holds,
    merged,
    segment_name,
)
from minitoolstream.domain.limits import MIB
from minitoolstream.services.core import Core
from minitoolstream.services.put_once import put_once

MOST_BYTES = 8 * MIB


async def merge_segments(core: Core, old: Sequence[SegmentName], sizes: dict[str, int]) -> int:
    """Put segments that stand before a whole checkpoint together; how many went into others. Killed anywhere, some rows
    are there twice, which a replay does not mind. One that is damaged stays, so that a restore names it."""
    gone = 0
    for group in _groups(old, sizes):
        try:
            parts = [await _read(core, one.name, sizes[one.name]) for one in group]
        except MtsError as error:
            if error.retryable:
                raise
            continue
        whole = merged(parts)
        name = segment_name(whole)
        if any(one.name == name and not holds(part, whole) for one, part in zip(group, parts, strict=True)):
            continue  # its last one begins as early as the whole; with the next ones they get another name
        body = await asyncio.to_thread(encode, whole)
        await put_once(core.payloads, name, body, content_type=SEGMENT_TYPE)
        gone += len(await core.payloads.delete_many([one.name for one in group if one.name != name]))
    return gone


def _groups(old: Sequence[SegmentName], sizes: dict[str, int]) -> Iterator[list[SegmentName]]:
    """Neighbours that are small together; large ones are left as they are."""
    group: list[SegmentName] = []
    total = 0
    for one in old:
        if total + sizes[one.name] > MOST_BYTES:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(one)
        total += sizes[one.name]
    if len(group) > 1:
        yield group


async def _read(core: Core, name: str, size: int) -> Segment:
    return await asyncio.to_thread(decode, name, await core.payloads.get_range(name, 0, size - 1))
