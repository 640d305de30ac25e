"""Reading, on fakes: slices, signatures, payloads that come along."""

from __future__ import annotations

import base64
import struct
from typing import Any
from zlib import crc32

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Message
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import (
    INLINE_MESSAGE_BYTES,
    INLINE_PAGE_BYTES,
    MessagePage,
    Selection,
    SignedExtents,
    get_message,
    resolve_start,
)
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.read_messages import place_of
from tests.core_kit import CoreKit, core_kit


async def fetch_messages(core: Core, subject: str, start: int, limit: int, **more: Any) -> MessagePage:
    page = (await (await place_of(core, Selection(subject, limit, **more), None, start)).read(shared=False)).page
    assert isinstance(page, MessagePage)
    return page


async def fetch_extents(core: Core, subject: str, start: int, limit: int) -> SignedExtents:
    page = (await (await place_of(core, Selection(subject, limit, whole=True), None, start)).read()).page
    assert isinstance(page, SignedExtents)
    return page


async def publish(kit: CoreKit, *payloads: bytes, subject: str = "orders") -> None:
    await publish_batch(kit.core, [InlineMessage(subject, payload, "text/plain") for payload in payloads])


async def upload(kit: CoreKit, payload: bytes) -> None:
    ticket = await kit.ticket(len(payload))
    await commit_created(kit.core, kit.put(ticket.upload, payload))


def data_of(message: Message) -> bytes | None:
    assert (message.data is None) == (message.encoding is None)
    return None if message.data is None else base64.b64decode(message.data)


async def test_each_message_of_a_pack_has_its_own_signed_range() -> None:
    kit = core_kit()
    await publish(kit, b"one", b"two!")
    page = await fetch_messages(kit.core, "orders", 1, 10)
    (body,) = [stored.body for stored in kit.payloads.objects.values()]
    for message, payload in zip(page.messages, (b"one", b"two!"), strict=True):
        assert message.range is not None
        first, last = map(int, message.range.removeprefix("bytes=").split("-"))
        assert body[first : last + 1] == payload
        assert f"range=({first}, {last})" in (message.url or "")
        assert data_of(message) is None
    assert kit.metrics.messages_delivered == 2


async def test_a_whole_object_has_no_range() -> None:
    kit = core_kit()
    await upload(kit, b"payload")
    (message,) = (await fetch_messages(kit.core, "orders", 1, 10)).messages
    assert message.range is None
    assert message.url == f"get:{message.object_name}?range=None&expires=3600"


async def test_an_empty_message_of_a_pack_comes_as_it_is() -> None:
    kit = core_kit()
    await publish(kit, b"", b"x")
    empty, other = (await fetch_messages(kit.core, "orders", 1, 10)).messages
    assert (empty.url, empty.range, data_of(empty)) == (None, None, b"")
    assert other.url is not None


async def test_an_empty_object_has_a_url_and_its_payload_too() -> None:
    kit = core_kit()
    await upload(kit, b"")
    (message,) = (await fetch_messages(kit.core, "orders", 1, 10, inline=True)).messages
    assert message.url is not None
    assert data_of(message) == b""


async def test_a_slice_of_a_pack_brings_its_own_payloads() -> None:
    kit = core_kit()
    await publish(kit, *(f"m{i}".encode() for i in range(10)))
    page = await fetch_messages(kit.core, "orders", 4, 3, inline=True)
    assert [data_of(message) for message in page.messages] == [b"m3", b"m4", b"m5"]
    assert (page.next_sequence, page.latest_sequence) == (7, 10)
    assert data_of(await get_message(kit.core, 8, inline=True)) == b"m7"


async def test_payloads_come_along_as_long_as_the_pages_budget_lasts() -> None:
    kit = core_kit()
    half = bytes(INLINE_MESSAGE_BYTES)
    for _ in range(INLINE_PAGE_BYTES // INLINE_MESSAGE_BYTES + 1):
        await upload(kit, half)
    await upload(kit, b"")
    page = await fetch_messages(kit.core, "orders", 1, 100, inline=True)
    brought = [message.data is not None for message in page.messages]
    assert brought == [True] * (len(brought) - 2) + [False, True]
    assert all(message.url for message in page.messages)


async def test_a_large_payload_keeps_its_url_only() -> None:
    kit = core_kit()
    await upload(kit, bytes(INLINE_MESSAGE_BYTES + 1))
    await publish(kit, bytes(INLINE_MESSAGE_BYTES + 1), b"its neighbour")
    page = await fetch_messages(kit.core, "orders", 1, 100, inline=True)
    assert [message.data for message in page.messages] == [None, None, None]


async def test_a_payload_that_is_gone_leaves_its_url() -> None:
    kit = core_kit()
    await upload(kit, b"gone")
    await upload(kit, b"here")
    del kit.payloads.objects[next(iter(kit.payloads.objects))]
    page = await fetch_messages(kit.core, "orders", 1, 100, inline=True)
    assert [data_of(message) for message in page.messages] == [None, b"here"]


async def test_a_store_that_is_down_is_said_when_payloads_shall_come_along() -> None:
    kit = core_kit()
    await upload(kit, b"x")
    kit.payloads.down = True
    assert len((await fetch_messages(kit.core, "orders", 1, 100)).messages) == 1
    with pytest.raises(MtsError) as caught:
        await fetch_messages(kit.core, "orders", 1, 100, inline=True)
    assert caught.value.code == "unavailable"


async def test_a_damaged_pack_is_never_a_wrong_payload() -> None:
    kit = core_kit()
    await publish(kit, b"right")
    (stored,) = kit.payloads.objects.values()
    stored.body = stored.body.replace(b"right", b"wrong")
    (message,) = (await fetch_messages(kit.core, "orders", 1, 100, inline=True)).messages
    assert message.data is None


async def test_an_extent_has_one_url_for_all_its_frames() -> None:
    kit = core_kit()
    await publish(kit, b"one", b"two!")
    await upload(kit, b"whole")
    page = await fetch_extents(kit.core, "orders", 1, 10)
    packed, whole = page.extents
    first, last = packed.extent.byte_range or (0, 0)
    assert last - first + 1 == 7 + 2 * 8
    assert f"range=({first}, {last})" in packed.url
    assert "range=None" in whole.url
    assert kit.metrics.messages_delivered == 3


async def test_there_is_no_message_where_none_was_committed() -> None:
    kit = core_kit()
    with pytest.raises(MtsError) as caught:
        await get_message(kit.core, 2**60)
    assert (caught.value.code, caught.value.details) == ("not_found", {"sequence": 2**60})


async def test_start_takes_numbers_and_words() -> None:
    kit = core_kit()
    await publish(kit, b"1", b"2")
    await publish(kit, b"3", subject="other")
    starts = [await resolve_start(kit.core, "orders", start) for start in (7, "first", "last", "new")]
    assert starts == [7, 0, 2, 4]


async def test_the_checksum_of_a_whole_pack_is_not_said_of_its_messages() -> None:
    kit = core_kit()
    ticket = await kit.ticket(2 + 2 * 8, sizes=(1, 1), sha256="a" * 64)
    await commit_created(kit.core, kit.put(ticket.upload, bytes(18)))
    page = await fetch_messages(kit.core, "orders", 1, 10)
    assert [message.sha256 for message in page.messages] == [None, None]


@pytest.mark.parametrize("frames", [[b"z" * 28], [b"abcd", b"q" * 16]])
async def test_frames_that_are_not_as_announced_come_without_data(frames: list[bytes]) -> None:
    kit = core_kit()
    body = b"".join(struct.pack(">II", len(frame), crc32(frame)) + frame for frame in frames)
    upload = (await kit.ticket(len(body), sizes=(10, 10))).upload
    await commit_created(kit.core, kit.put(upload, body))
    await publish(kit, b"fine")
    page = await fetch_messages(kit.core, "orders", 1, 100, inline=True)
    assert [message.data is None for message in page.messages] == [True, True, False]
