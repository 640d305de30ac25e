"""Write the payloads of some rows into one pack, and let the rows point there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from minitoolstream.domain.compaction import build_compacted
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import payloads_of
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.services.core import Core
from minitoolstream.services.publish_inline import PACK_CONTENT_TYPE
from minitoolstream.services.put_once import put_once

_AT_ONCE = 16
_DAMAGED = frozenset({"payload_missing", "checksum_mismatch", "size_mismatch"})


@dataclass(slots=True)
class Compacted:
    """What became of a group. `target` is None when nothing was moved; `left` are (sequence, why) of rows that stay
    as they are."""

    target: str | None = None
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    left: list[tuple[int, str]] = field(default_factory=list)


async def compact_rows(core: Core, extents: Sequence[Extent]) -> Compacted:
    """One try. Rows that changed meanwhile are moved by nobody, nor are their neighbours: the next run sees them.

    Killed anywhere, nothing is lost: rows point at their old objects until the new one is whole, and an object that no
    row points at goes with the reconciler. The old ones stay for the grace of the trash.
    """
    done = Compacted()
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def read(extent: Extent) -> bytes | None:
        async with at_once:
            try:
                return await _checked(core, extent)
            except MtsError as error:
                if error.code not in _DAMAGED:
                    raise
                done.left.append((extent.sequence, error.code))
                return None

    target = pack_name(new_id(await core.clock.now_ms()))  # before reading: one that takes too long is refused
    contents = await asyncio.gather(*map(read, extents))
    whole = [(extent, content) for extent, content in zip(extents, contents, strict=True) if content is not None]
    if len(whole) < 2:
        return done
    body, moves = build_compacted(whole)
    await put_once(core.payloads, target, body, content_type=PACK_CONTENT_TYPE)
    if not await core.deletions.move_rows(target, moves):
        done.left += [(extent.sequence, "changed") for extent, _ in whole]
        return done
    done.target, done.rows = target, len(moves)
    done.messages = sum(extent.count for extent, _ in whole)
    done.bytes = sum(extent.size for extent, _ in whole)
    return done


async def _checked(core: Core, extent: Extent) -> bytes:
    """What is damaged must not get a checksum that says it is not."""
    span = extent.byte_range
    if span is not None:
        content = await core.payloads.get_range(extent.object_name, *span)
        payloads_of(content, extent.sizes or [extent.size])
        return content
    content = await core.payloads.get_whole(extent.object_name, extent.size)
    if extent.sha256 is not None and hashlib.sha256(content).hexdigest() != extent.sha256:
        raise MtsError("checksum_mismatch", "the payload is not what was announced")
    return content
