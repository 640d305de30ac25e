"""Write a pack anew without the messages that were deleted from it, and let its rows point at the new one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from minitoolstream.domain.deletion import Layout, lay_out
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.pack import HEAD_PREFIX, head_length
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.ports import RewritePlan, StoredPart
from minitoolstream.services.core import Core
from minitoolstream.services.publish_inline import PACK_CONTENT_TYPE
from minitoolstream.services.put_once import put_once
from minitoolstream.services.read_ahead import part_length

_AT_ONCE = 8 * MIB
_IN_ONE_PUT = 2 * _AT_ONCE
_LARGEST_HEAD = 64 * MIB


async def rewrite_pack(core: Core, name: str) -> bool:
    """One try; False when rows changed meanwhile, or some turned out to have no payload: try again.

    Killed anywhere, nothing is lost: rows point at the old object until the new one is whole, and what was begun is
    known by its name to the next who tries.
    """
    target = pack_name(new_id(await core.clock.now_ms()))
    plan = await core.deletions.plan(name, target)
    if plan is None:
        return True
    try:
        layout = lay_out(plan.kept, await _head_of(core, name) if plan.kept else b"")
        if plan.kept:
            await _store(core, name, target, layout)
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        await _set_apart(core, name, plan, error)
        return False
    return await core.deletions.switch(name, target, layout.moves, plan.missing)


async def _head_of(core: Core, name: str) -> bytes:
    """What the old pack says of who published what; nothing where a producer laid it out in its own way."""
    try:
        length = head_length(await core.payloads.get_range(name, 0, HEAD_PREFIX - 1))
        return await core.payloads.get_range(name, 0, length - 1) if 0 < length <= _LARGEST_HEAD else b""
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        return b""  # shorter than a head: then what is kept tells


async def _store(core: Core, name: str, target: str, layout: Layout) -> None:
    if layout.size <= _IN_ONE_PUT:
        body = [block async for block in _blocks(core, name, layout)]
        await put_once(core.payloads, target, body, content_type=PACK_CONTENT_TYPE)
        return
    multipart_id = await core.payloads.create_multipart(target, content_type=PACK_CONTENT_TYPE, metadata={})
    least = part_length(layout.size, _AT_ONCE)
    parts: list[StoredPart] = []
    waiting = bytearray()
    async for block in _blocks(core, name, layout):
        waiting += block
        if len(waiting) >= least:
            parts.append(await core.payloads.put_part(target, multipart_id, len(parts) + 1, bytes(waiting)))
            waiting.clear()
    if waiting:
        parts.append(await core.payloads.put_part(target, multipart_id, len(parts) + 1, bytes(waiting)))
    if not await core.payloads.complete_multipart(target, multipart_id, parts):
        # Completed, and the answer was lost; or aborted by somebody else, and then there is nothing to point at.
        found = await core.payloads.find(target)
        if found is None or found.size != layout.size:
            raise unavailable("the object store lost the parts of a pack that is written anew; it is tried again")


async def _blocks(core: Core, name: str, layout: Layout) -> AsyncIterator[bytes]:
    yield layout.head
    for start, end in layout.runs:
        for first in range(start, end, _AT_ONCE):
            yield await core.payloads.get_range(name, first, min(first + _AT_ONCE, end) - 1)


async def _set_apart(core: Core, name: str, plan: RewritePlan, error: MtsError) -> None:
    """Neighbours whose bytes are not there cannot be kept, and must not keep what was deleted either."""
    found = await core.payloads.find(name)
    size = found.size if found else 0
    beyond = [one.key for one in plan.kept if one.first + one.length > size]
    lost = [(key, name, "missing") for key in beyond if isinstance(key, int)]
    if not lost:
        raise error
    await core.audit.quarantine(lost)
