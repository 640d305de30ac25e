"""The content of a message: its id, by its digest where somebody has given one, else by reading it."""

from __future__ import annotations

import hashlib

from minitoolstream.domain.cid import RAW, Cid, cid_of_sha256
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent, Placed, messages_of, wire_number
from minitoolstream.services.core import Core
from minitoolstream.services.hold_content import Reference

_READ_AT_ONCE = 8 * MIB


async def content_of(core: Core, sequence: int) -> tuple[Cid, str]:
    """The content id of a message, and where its bytes are, as a pin keeps it."""
    extent = await core.metadata.get_message(sequence)
    if extent is None:
        raise not_found(f"there is no message {sequence}", sequence=wire_number(sequence))
    if extent.missing or extent.unverified:
        raise MtsError("payload_missing", f"the payload of message {sequence} is not in the object store")
    (placed,) = messages_of(extent)
    message, first = placed
    return await cid_of_message(core, extent, placed), f"{first or 0} {message.size} {message.object_name}"


def reference_of(placed: Placed, rf: int, zones: frozenset[str]) -> Reference:
    """Named by its sequence, which is never given twice."""
    message, first = placed
    return Reference(f"message/{message.sequence}", rf, zones, message.object_name, first, message.size)


async def cid_of_message(core: Core, extent: Extent, placed: Placed) -> Cid:
    message, first = placed
    if extent.sha256 is not None and first is None:
        return cid_of_sha256(extent.sha256)
    digest = hashlib.sha256()
    for at in range(0, message.size, _READ_AT_ONCE):
        last = min(at + _READ_AT_ONCE, message.size) - 1
        digest.update(await core.payloads.get_range(message.object_name, (first or 0) + at, (first or 0) + last))
    return Cid(RAW, digest.digest())
