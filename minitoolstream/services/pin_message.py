"""The content of a message: its id, by its digest where somebody has given one, else by reading it."""

from __future__ import annotations

from minitoolstream.domain.cid import Cid, cid_of, cid_of_sha256
from minitoolstream.domain.errors import MtsError, bad_request, not_found
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent, Placed, messages_of
from minitoolstream.services.core import Core
from minitoolstream.services.hold_content import Reference

READ_UP_TO = 8 * MIB
"""Larger payloads without a digest are left to the Spark step."""


async def content_of(core: Core, sequence: int) -> tuple[Cid, str]:
    """The content id of a message, and where its bytes are, as a pin keeps it."""
    extent = await core.metadata.get_message(sequence)
    if extent is None:
        raise not_found(f"there is no message {sequence}", sequence=sequence)
    if extent.missing or extent.unverified:
        raise MtsError("payload_missing", f"the payload of message {sequence} is not in the object store")
    (placed,) = messages_of(extent)
    message, first = placed
    if is_too_large(extent, placed):
        most = f"more than {READ_UP_TO // MIB} MiB and came without a sha256"
        raise bad_request(f"message {sequence} has {most}: pin it by its cid", field="sequence")
    return await cid_of_message(core, extent, placed), f"{first or 0} {message.size} {message.object_name}"


def reference_of(placed: Placed, rf: int, zones: frozenset[str]) -> Reference:
    """Named by its sequence, which is never given twice."""
    message, first = placed
    return Reference(f"message/{message.sequence}", rf, zones, message.object_name, first, message.size)


def is_too_large(extent: Extent, placed: Placed) -> bool:
    """To be read for its digest, which nobody gave."""
    known = extent.sha256 is not None and placed.first_byte is None
    return not known and placed.message.size > READ_UP_TO


async def cid_of_message(core: Core, extent: Extent, placed: Placed) -> Cid:
    message, first = placed
    if extent.sha256 is not None and first is None:
        return cid_of_sha256(extent.sha256)
    start = first or 0
    last = start + message.size - 1
    return cid_of(await core.payloads.get_range(message.object_name, start, last) if message.size else b"")
