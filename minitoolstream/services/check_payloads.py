"""Read payloads and compare them with what is known of them: frames with their CRCs, whole payloads with SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent
from minitoolstream.domain.pack import FrameCheck
from minitoolstream.services.core import Core

_BLOCK = 4 * MIB
_KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Checked:
    """Of one object: bytes that were read, rows that have no checksum, and rows that are wrong, with the reason."""

    bytes: int
    without: int
    wrong: list[tuple[Extent, MtsError]]


async def check_object(core: Core, name: str, keys: Sequence[int]) -> Checked:
    """All rows of an object. Those that went elsewhere or away meanwhile are passed over."""
    read, without, wrong, seen = 0, 0, [], set()
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        for extent in (await core.audit.rows_at(some)).values():
            span = (extent.byte_range, extent.sha256, extent.size)
            if extent.object_name != name or extent.missing or span in seen:
                continue
            seen.add(span)  # a dead letter shares its bytes with the message it came from
            try:
                read += await _check_row(core, extent)
                without += int(extent.byte_range is None and not extent.sha256)
            except MtsError as error:
                if error.code not in {"payload_missing", "checksum_mismatch"}:
                    raise
                if await is_still_there(core, extent):
                    wrong.append((extent, error))
    return Checked(read, without, wrong)


async def is_still_there(core: Core, extent: Extent) -> bool:
    """The row points where it did: then its payload must be there, whatever else happens."""
    now = (await core.audit.rows_at([extent.sequence])).get(extent.sequence)
    return now is not None and (now.object_name, now.byte_from) == (extent.object_name, extent.byte_from)


async def _check_row(core: Core, extent: Extent) -> int:
    span = extent.byte_range
    if span is not None:
        frames = FrameCheck()
        async for block in _blocks(core, extent.object_name, span[0], span[1] + 1):
            frames.feed(block)
        frames.finish()
        if frames.sizes != (extent.sizes or [extent.size]):
            raise MtsError("checksum_mismatch", "the frames of the pack are not those that were announced")
        return span[1] + 1 - span[0]
    digest = hashlib.sha256()
    async for block in _blocks(core, extent.object_name, 0, extent.size):
        digest.update(block)
    if extent.sha256 and digest.hexdigest() != extent.sha256:
        raise MtsError("checksum_mismatch", "the payload does not have the SHA-256 that was announced")
    return extent.size


async def _blocks(core: Core, name: str, first: int, end: int) -> AsyncIterator[bytes]:
    for start in range(first, end, _BLOCK):
        yield await core.payloads.get_range(name, start, min(start + _BLOCK, end) - 1)
