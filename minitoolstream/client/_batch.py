"""Many messages in few calls: frames, cut into calls that fit the limits of a pack."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._codec import encode_now
from minitoolstream.client._source import BytesSource
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Item, Result, content_type_for, receipt_of, to_bytes
from minitoolstream.client._upload import Upload
from minitoolstream.client._upload_calls import Announcement
from minitoolstream.domain.checks import check_content_type, check_group, check_headers, check_producer
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES, MIB
from minitoolstream.domain.media_types import FRAMES
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.subject_settings import check_codec

MAX_CALL_BYTES = 8 * MIB
_SIZE_METADATA = 8
"""Bytes a message's size takes in the metadata of its pack; facts that all share count once."""
_LENGTH = struct.Struct(">I")

AnyItem = Item | bytes | str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it goes over the wire, and what it counts against the limits."""

    item: Item
    meta: bytes
    payload: bytes

    @property
    def size(self) -> int:
        return 8 + len(self.meta) + len(self.payload)


def to_item(given: AnyItem) -> Item:
    if isinstance(given, Item):
        return given
    if isinstance(given, dict):
        try:
            return Item(**given)
        except TypeError as error:
            raise bad_request(f"a dict of a batch has the fields of Item: {error}") from None
    return Item(given)


def to_frame(given: AnyItem) -> Frame:
    """The item's frame, after the checks the host will make: it refuses a whole call for one bad item."""
    item = to_item(given)
    return stored_frame(item, encode_now(to_bytes(item.data), check_codec(item.codec)))


def stored_frame(item: Item, stored: bytes) -> Frame:
    """The same of a payload as it is stored, whatever the item's `data` is."""
    content_type = check_content_type(content_type_for(item.data, item.content_type))
    check_producer(item.producer_id, item.seqno, item.epoch)
    meta: dict[str, Any] = {"content_type": content_type}
    if item.headers:
        meta["headers"] = check_headers(item.headers)
    if item.producer_id is not None:
        meta["producer_id"] = item.producer_id
    if item.seqno is not None:
        meta["seqno"] = wire_number(item.seqno)
    if item.epoch is not None:
        meta["epoch"] = item.epoch
    if item.group is not None:
        meta["group"] = check_group(item.group)
    codec = check_codec(item.codec)
    if codec is not None:
        meta["codec"] = codec
    return Frame(item, msgspec.json.encode(meta), stored)


def split(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Calls that fit, in order. A message too large for any call comes alone."""
    call: list[Frame] = []
    size = metadata = 0
    for frame in frames:
        own = _SIZE_METADATA + (len(frame.meta) if call and frame.meta != call[0].meta else 0)
        full = len(call) == MAX_MESSAGES_PER_PACK
        if call and (full or size + frame.size > MAX_CALL_BYTES or metadata + own > MAX_PACK_METADATA_BYTES):
            yield call
            call, size, metadata = [], 0, 0
        call.append(frame)
        size += frame.size
        metadata += own
    if call:
        yield call


def encode(frames: Sequence[Frame]) -> list[bytes]:
    pieces: list[bytes] = []
    for frame in frames:
        pieces += (_LENGTH.pack(len(frame.meta)), frame.meta, _LENGTH.pack(len(frame.payload)), frame.payload)
    return pieces


def numbered(
    items: Iterable[AnyItem], producer_id: str | None, first_seqno: int | None, epoch: int | None
) -> Iterator[Item]:
    """The items as messages of one named producer, with rising seqnos, when one is named."""
    if producer_id is None:
        if first_seqno is not None or epoch is not None:
            raise bad_request("first_seqno and epoch need a producer_id", field="producer_id")
        yield from map(to_item, items)
        return
    if first_seqno is None:
        raise bad_request("a producer_id needs first_seqno, the seqno of the first item", field="first_seqno")
    for number, given in enumerate(items, first_seqno):
        yield replace(to_item(given), producer_id=producer_id, seqno=number, epoch=epoch)


async def publish_items(
    transport: Transport, subject: str, items: Iterable[Item], transaction_id: str | None = None
) -> list[Result]:
    """A result for each item, in order; an item that no host would take fails alone and is not sent."""
    described = list(items)
    if any(item.codec for item in described):
        framed = await asyncio.to_thread(_frames, described)
    else:
        framed = _frames(described)
    good = [frame for frame in framed if isinstance(frame, Frame)]
    sent = iter(await publish_frames(transport, subject, good, transaction_id))
    return [next(sent) if isinstance(frame, Frame) else Result(error=frame) for frame in framed]


def _frames(items: Iterable[Item]) -> list[Frame | MtsError]:
    frames: list[Frame | MtsError] = []
    for item in items:
        try:
            frames.append(to_frame(item))
        except MtsError as error:
            frames.append(error)
    return frames


async def publish_frames(
    transport: Transport, subject: str, frames: Iterable[Frame], transaction_id: str | None = None
) -> list[Result]:
    """A result for each, in order. Calls go one after the other, so sequences rise in the order of the items.

    A call that fails as a whole is raised when it was the first; later, its items and all behind them get
    the error as their result, so that the caller still learns what was stored before.
    """
    check_subject(subject)
    results: list[Result] = []
    waiting = deque(split(frames))
    while waiting:
        call = waiting.popleft()
        try:
            results += await _publish_call(transport, subject, call, transaction_id)
        except MtsError as error:
            if error.code == "too_large" and len(call) > 1:
                half = len(call) // 2  # nothing of it was stored, and the host's limits may be tighter than ours
                waiting.extendleft((call[half:], call[:half]))
                continue
            if not results:
                raise
            results += [Result(error=error)] * len(call)
            not_sent = MtsError("not_sent", f"not sent, because a call before it failed: {error.message}")
            results += [Result(error=not_sent)] * sum(map(len, waiting))
            break
    return results


async def _publish_call(
    transport: Transport, subject: str, call: list[Frame], transaction_id: str | None
) -> list[Result]:
    if len(call) == 1 and call[0].size > MAX_CALL_BYTES:
        return [await _publish_alone(transport, subject, call[0], transaction_id)]
    headers = {"content-type": FRAMES}
    if transaction_id is not None:
        headers["x-mts-transaction-id"] = transaction_id
    try:
        answer = await transport.call(
            "POST",
            f"/v1/subjects/{subject}/messages/batch",
            schema.BatchAnswer,
            body=encode(call),
            headers=headers,
            repeatable=all(frame.item.producer_id is not None for frame in call),
        )
    except MtsError as error:
        if error.code != "too_large" or len(call) > 1:
            raise
        return [await _publish_alone(transport, subject, call[0], transaction_id)]
    if len(answer.results) != len(call):
        raise MtsError("internal", f"{len(call)} messages sent, {len(answer.results)} results came back")
    return [_result(result) for result in answer.results]


async def _publish_alone(transport: Transport, subject: str, frame: Frame, transaction_id: str | None) -> Result:
    item = frame.item
    announced = Announcement(
        content_type_for(item.data, item.content_type),
        dict(item.headers),
        item.producer_id,
        item.seqno,
        item.epoch,
        item.group,
        check_codec(item.codec),
        transaction_id,
    )
    try:
        return Result(await Upload(transport, subject, BytesSource(frame.payload), announced).run())
    except MtsError as error:
        if error.retryable:
            raise
        return Result(error=error)


def _result(answer: schema.BatchResult) -> Result:
    if answer.error is None:
        return Result(receipt_of(answer))
    error = answer.error
    details = error.get("details")
    return Result(
        error=MtsError(
            str(error.get("code", "internal")),
            str(error.get("message", "")),
            details if isinstance(details, dict) else {},
        )
    )
