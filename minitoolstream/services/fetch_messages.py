"""Reading: metadata in order, each message with a presigned URL, or with its payload when it is small."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from minitoolstream.domain.cid import cid_of_sha256
from minitoolstream.domain.consumer import AtTime, Filter, Start
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.limits import KIB, MAX_SEQUENCE, MIB
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE, Extent, Message, Placed, messages_of
from minitoolstream.domain.pack import payloads_of
from minitoolstream.ports import ExtentPage, GetRequest
from minitoolstream.services.core import Core
from minitoolstream.services.nearest_copy import point_to_nearest
from minitoolstream.services.signature_life import download_life

_log = logging.getLogger(__name__)
INLINE_MESSAGE_BYTES = 256 * KIB
INLINE_PAGE_BYTES = 4 * MIB
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reader asks for. Those with equal selections get the same pages.

    `whole`: extents, with one URL for a whole pack. `inline`: small payloads come along as base64.
    `region`: where the reader is.
    """

    subject: str
    limit: int
    partition: int | None = None
    conditions: Filter = ()
    whole: bool = False
    inline: bool = False
    region: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """`more`: the end is not reached. `forms` holds encodings that readers of the same page share."""

    messages: list[Message]
    next_sequence: int
    latest_sequence: int
    more: bool = False
    forms: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def count(self) -> int:
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class SignedExtent:
    extent: Extent
    url: str


@dataclass(frozen=True, slots=True)
class SignedExtents:
    """The same, in extents."""

    extents: list[SignedExtent]
    next_sequence: int
    latest_sequence: int
    more: bool = False
    forms: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def count(self) -> int:
        return sum(item.extent.count for item in self.extents)


Page = MessagePage | SignedExtents


async def resolve_start(core: Core, subject: str, start: Start) -> int:
    """Words and times as sequences."""
    if isinstance(start, int):
        return start
    if isinstance(start, AtTime):
        return await core.metadata.sequence_at(subject, start.seconds)
    if start == "first":
        return 0
    if start == "last":
        return await core.metadata.latest_sequence(subject)
    return (await core.metadata.get_messages(subject, MAX_SEQUENCE, 1)).watermark + 1


async def read_page(core: Core, selection: Selection, start: int) -> Page:
    """A page from a sequence on; counted as delivered by whoever hands it out."""
    page = await core.metadata.get_messages(
        selection.subject,
        start,
        selection.limit,
        partition=selection.partition,
        whole=selection.whole,
        conditions=selection.conditions,
    )
    return await signed_page(core, page, selection)


async def signed_page(core: Core, page: ExtentPage, selection: Selection) -> Page:
    """What was read, with URLs."""
    return _extents(core, page) if selection.whole else await _messages(core, page, selection)


async def _messages(core: Core, page: ExtentPage, selection: Selection) -> MessagePage:
    messages = await deliver(core, page.extents, inline=selection.inline, region=selection.region)
    return MessagePage(messages, page.next_sequence, page.latest_sequence, page.next_sequence <= page.watermark)


def _extents(core: Core, page: ExtentPage) -> SignedExtents:
    urls = core.signer.get_many(
        [
            GetRequest(extent.object_name, extent.content_type or DEFAULT_CONTENT_TYPE, extent.byte_range)
            for extent in page.extents
        ],
        expires_in=download_life(core),
    )
    signed = [SignedExtent(extent, url) for extent, url in zip(page.extents, urls, strict=True)]
    return SignedExtents(signed, page.next_sequence, page.latest_sequence, page.next_sequence <= page.watermark)


async def get_message(core: Core, sequence: int, *, inline: bool = False, region: str | None = None) -> Message:
    extent = await core.metadata.get_message(sequence)
    if extent is None:
        raise not_found(f"there is no message {sequence}", sequence=sequence)
    (message,) = await deliver(core, [extent], inline=inline, region=region)
    core.metrics.delivered(1)
    message.cid = cid_of_sha256(message.sha256).text if message.sha256 else None
    return message


async def deliver(core: Core, extents: Sequence[Extent], *, inline: bool, region: str | None = None) -> list[Message]:
    """The messages of extents with their URLs, small payloads too when asked for."""
    placed = [item for extent in extents for item in messages_of(extent)]
    _sign(core, placed)
    if region is not None:
        await point_to_nearest(core, [item.message for item in placed], region)
    if inline:
        await _bring_payloads(core, extents, placed)
    return [item.message for item in placed]


def _sign(core: Core, placed: Sequence[Placed]) -> None:
    requests = []
    present = [item for item in placed if not item.message.payload_missing]
    for message, first in present:
        span = None
        if first is not None and message.size > 0:
            span = (first, first + message.size - 1)
            message.range = f"bytes={span[0]}-{span[1]}"
        requests.append(GetRequest(message.object_name, message.content_type, span))
    urls = core.signer.get_many(requests, expires_in=download_life(core))
    for (message, first), url in zip(present, urls, strict=True):
        if message.size > 0 or first is None:
            message.url = url
        else:  # an empty message of a pack has no byte to ask for
            message.data, message.encoding = "", "base64"


async def _bring_payloads(core: Core, extents: Sequence[Extent], placed: Sequence[Placed]) -> None:
    """One read an extent, for the extents that fit into the page's budget. What is left out has its URL."""
    left, position = _room(core, placed), 0
    limit = asyncio.Semaphore(_AT_ONCE)
    reads = []
    for extent in extents:
        part = placed[position : position + extent.count]
        position += extent.count
        small = extent.size <= left and all(item.message.size <= INLINE_MESSAGE_BYTES for item in part)
        if small and not extent.unverified and not extent.missing:
            left -= extent.size
            reads.append(_bring(core, extent, [item.message for item in part], limit))
    await asyncio.gather(*reads)


def _room(core: Core, placed: Sequence[Placed]) -> int:
    """Bytes of payloads that may come along: as base64 they are a third longer."""
    if core.answer_bytes is None:
        return INLINE_PAGE_BYTES
    taken = len(json.dumps(msgspec.json.encode([item.message for item in placed]).decode()))
    return min(INLINE_PAGE_BYTES, (core.answer_bytes - taken) * 3 // 4)


async def _bring(core: Core, extent: Extent, messages: Sequence[Message], limit: asyncio.Semaphore) -> None:
    async with limit:
        try:
            payloads = await _payloads(core, extent)
        except MtsError as error:
            if error.code not in {"payload_missing", "checksum_mismatch"}:
                raise
            # One damaged object must not hide the page: its messages come without data, and the operator hears of it.
            _log.error("%s of messages up to %d: %s", extent.object_name, extent.sequence, error.message)
            if error.code == "payload_missing" and await set_apart(core, extent):
                for message in messages:
                    message.payload_missing, message.url, message.range = True, None, None
            return
    for message, payload in zip(messages, payloads, strict=True):
        message.data, message.encoding = base64.b64encode(payload).decode(), "base64"


async def set_apart(core: Core, extent: Extent) -> bool:
    """A payload was not there for a reader: look again, and keep its row apart so that the next one is told. False
    when it is there, or the row is gone or points elsewhere by now."""
    found = await core.payloads.find(extent.object_name)
    span = extent.byte_range
    if found is not None and found.size >= (extent.size if span is None else span[1] + 1):
        return False
    return await core.audit.quarantine([(extent.sequence, extent.object_name, "missing")]) > 0


async def _payloads(core: Core, extent: Extent) -> list[bytes]:
    if extent.byte_range is not None:
        frames = await core.payloads.get_range(extent.object_name, *extent.byte_range)
        return payloads_of(frames, extent.sizes or [extent.size])
    if extent.size == 0:
        return [b""]
    return [await core.payloads.get_range(extent.object_name, 0, extent.size - 1)]
