"""Reading: metadata in order, each message with a presigned URL, or with its payload when it is small."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.limits import KIB, MAX_SEQUENCE, MIB
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE, Extent, Message, Placed, messages_of, wire_number
from minitoolstream.domain.pack import read_frames
from minitoolstream.ports import GetRequest
from minitoolstream.services.core import Core

_log = logging.getLogger(__name__)
INLINE_MESSAGE_BYTES = 256 * KIB
INLINE_PAGE_BYTES = 4 * MIB
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MessagePage:
    messages: list[Message]
    next_sequence: int
    latest_sequence: int


@dataclass(frozen=True, slots=True)
class SignedExtent:
    extent: Extent
    url: str


@dataclass(frozen=True, slots=True)
class SignedExtents:
    extents: list[SignedExtent]
    next_sequence: int
    latest_sequence: int


async def resolve_start(core: Core, subject: str, start: int | str) -> int:
    """`first`, `last` and `new` as sequences."""
    if isinstance(start, int):
        return start
    if start == "first":
        return 0
    if start == "last":
        return await core.metadata.latest_sequence(subject)
    return (await core.metadata.get_messages(subject, MAX_SEQUENCE, 1)).watermark + 1


async def fetch_messages(
    core: Core, subject: str, start: int, limit: int, *, partition: int | None = None, inline: bool = False
) -> MessagePage:
    """A page of messages. With `inline`, small payloads come along as base64."""
    page = await core.metadata.get_messages(subject, start, limit, partition=partition)
    messages = await _deliver(core, page.extents, inline=inline)
    return MessagePage(messages, page.next_sequence, page.latest_sequence)


async def fetch_extents(
    core: Core, subject: str, start: int, limit: int, *, partition: int | None = None
) -> SignedExtents:
    """The same as extents: one URL for a whole pack."""
    page = await core.metadata.get_messages(subject, start, limit, partition=partition, whole=True)
    urls = core.signer.get_many(
        [
            GetRequest(extent.object_name, extent.content_type or DEFAULT_CONTENT_TYPE, extent.byte_range)
            for extent in page.extents
        ],
        expires_in=int(core.settings["downloads.url_life"]),
    )
    signed = [SignedExtent(extent, url) for extent, url in zip(page.extents, urls, strict=True)]
    core.metrics.delivered(sum(extent.count for extent in page.extents))
    return SignedExtents(signed, page.next_sequence, page.latest_sequence)


async def get_message(core: Core, sequence: int, *, inline: bool = False) -> Message:
    extent = await core.metadata.get_message(sequence)
    if extent is None:
        raise not_found(f"there is no message {sequence}", sequence=wire_number(sequence))
    return (await _deliver(core, [extent], inline=inline))[0]


async def _deliver(core: Core, extents: Sequence[Extent], *, inline: bool) -> list[Message]:
    placed = [item for extent in extents for item in messages_of(extent)]
    _sign(core, placed)
    if inline:
        await _bring_payloads(core, extents, placed)
    core.metrics.delivered(len(placed))
    return [item.message for item in placed]


def _sign(core: Core, placed: Sequence[Placed]) -> None:
    requests = []
    for message, first in placed:
        span = None
        if first is not None and message.size > 0:
            span = (first, first + message.size - 1)
            message.range = f"bytes={span[0]}-{span[1]}"
        requests.append(GetRequest(message.object_name, message.content_type, span))
    urls = core.signer.get_many(requests, expires_in=int(core.settings["downloads.url_life"]))
    for (message, first), url in zip(placed, urls, strict=True):
        if message.size > 0 or first is None:
            message.url = url
        else:  # an empty message of a pack has no byte to ask for
            message.data, message.encoding = "", "base64"


async def _bring_payloads(core: Core, extents: Sequence[Extent], placed: Sequence[Placed]) -> None:
    """One read an extent, for the extents that fit into the page's budget. What is left out has its URL."""
    left, position = INLINE_PAGE_BYTES, 0
    limit = asyncio.Semaphore(_AT_ONCE)
    reads = []
    for extent in extents:
        part = placed[position : position + extent.count]
        position += extent.count
        small = extent.size <= left and all(item.message.size <= INLINE_MESSAGE_BYTES for item in part)
        if small and not extent.unverified:
            left -= extent.size
            reads.append(_bring(core, extent, [item.message for item in part], limit))
    await asyncio.gather(*reads)


async def _bring(core: Core, extent: Extent, messages: Sequence[Message], limit: asyncio.Semaphore) -> None:
    async with limit:
        try:
            payloads = await _payloads(core, extent)
        except MtsError as error:
            if error.code not in {"payload_missing", "checksum_mismatch"}:
                raise
            # One damaged object must not hide the page: its messages come without data, and the operator hears of it.
            _log.error("%s of messages up to %d: %s", extent.object_name, extent.sequence, error.message)
            return
    for message, payload in zip(messages, payloads, strict=True):
        message.data, message.encoding = base64.b64encode(payload).decode(), "base64"


async def _payloads(core: Core, extent: Extent) -> list[bytes]:
    if extent.byte_range is not None:
        payloads = list(read_frames(await core.payloads.get_range(extent.object_name, *extent.byte_range)))
        if [len(payload) for payload in payloads] != (extent.sizes or [extent.size]):
            raise MtsError("checksum_mismatch", "the frames of the pack are not those that were announced")
        return payloads
    if extent.size == 0:
        return [b""]
    return [await core.payloads.get_range(extent.object_name, 0, extent.size - 1)]
