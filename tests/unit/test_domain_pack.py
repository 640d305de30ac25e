"""The pack format: what goes in comes out, damage is seen, limits hold."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK
from minitoolstream.domain.message import Extent, messages_of, wire_number
from minitoolstream.domain.pack import (
    FRAME_PREFIX,
    AlikeMessages,
    InlineMessage,
    build_alike_pack,
    build_pack,
    read_alike_batch,
    read_batch,
    read_frames,
)

_messages = st.builds(
    InlineMessage,
    subject=st.sampled_from(["a", "b", "c"]),
    data=st.binary(max_size=40),
    content_type=st.sampled_from(["text/plain", "text/html"]),
    headers=st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=2),
)


@given(st.lists(_messages, min_size=1, max_size=20))
def test_every_message_comes_out_as_it_went_in(messages: list[InlineMessage]) -> None:
    pack = build_pack(messages)
    body = b"".join(pack.body)
    seen: dict[int, tuple[bytes, str, dict[str, str]]] = {}
    for group in pack.groups:
        extent = Extent(
            sequence=len(group.sizes),
            headers=dict(group.headers),
            object_name="o",
            subject=group.subject,
            create_at=0,
            partition=0,
            offset=len(group.sizes) - 1,
            count=len(group.sizes),
            size=sum(group.sizes),
            byte_from=group.byte_from,
            sizes=group.sizes,
            own=group.own,
            content_type=group.content_type,
        )
        assert extent.byte_range is not None
        first, last = extent.byte_range
        frames = list(read_frames(body[first : last + 1]))
        for placed, index, frame in zip(messages_of(extent), group.indexes, frames, strict=True):
            assert placed.first_byte is not None
            assert body[placed.first_byte : placed.first_byte + placed.message.size] == frame
            seen[index] = (frame, placed.message.content_type, placed.message.headers)
    assert seen == {index: (item.data, item.content_type, item.headers) for index, item in enumerate(messages)}


@given(st.lists(_messages, min_size=1, max_size=10))
def test_groups_follow_each_other_and_keep_the_order_within_a_subject(messages: list[InlineMessage]) -> None:
    pack = build_pack(messages)
    position = len(pack.body[0])
    for group in pack.groups:
        assert group.byte_from == position
        assert list(group.indexes) == sorted(group.indexes)
        assert {messages[index].subject for index in group.indexes} == {group.subject}
        position += sum(size + FRAME_PREFIX for size in group.sizes)
    assert position == len(b"".join(pack.body))


def test_the_head_says_what_recovery_needs() -> None:
    messages = [
        InlineMessage("s", b"x", "a/b", {"h": "1"}, producer_id="p", seqno=7, epoch=2),
        InlineMessage("s", b"yy", "a/b", {"h": "1"}, key="k", digest="d"),
        InlineMessage("s", b"", "a/c", {}, group="g"),
    ]
    body = b"".join(build_pack(messages).body)
    assert body[:5] == b"MTSP\x01"
    (length,) = struct.unpack(">I", body[5:9])
    (head,) = json.loads(body[9 : 9 + length])
    assert (head["subject"], head["headers"], head["content_type"]) == ("s", {"h": "1"}, "a/b")
    assert head["codec"] is None
    assert (head["sizes"], head["own"]) == ([1, 2, 0], [[2, {}, "a/c"]])
    assert head["marks"] == [
        {"index": 0, "producer_id": "p", "seqno": 7, "epoch": 2},
        {"index": 1, "key": "k", "digest": "d"},
        {"index": 2, "group": "g", "hash": 0x1D41B76},
    ]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_messages_that_are_alike_make_the_same_pack(payloads: list[bytes]) -> None:
    one_by_one = build_pack([InlineMessage("s", payload, "a/b", {"h": "1"}) for payload in payloads])
    together = build_alike_pack(AlikeMessages(InlineMessage("s", b"", "a/b", {"h": "1"}), payloads))
    assert together == one_by_one


def test_a_pack_has_limits() -> None:
    small = InlineMessage("s", b"", "a/b")
    build_pack([small] * MAX_MESSAGES_PER_PACK)
    with pytest.raises(MtsError, match="10000 messages") as caught:
        build_pack([small] * (MAX_MESSAGES_PER_PACK + 1))
    assert caught.value.code == "too_large"


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_damage_is_an_error_and_never_a_wrong_payload(payloads: list[bytes], data: Any) -> None:
    pack = build_pack([InlineMessage("s", payload, "a/b") for payload in payloads])
    frames = b"".join(pack.body[1:])
    assert list(read_frames(frames)) == payloads
    at = data.draw(st.integers(0, len(frames) - 1))
    damaged = frames[:at] + bytes([frames[at] ^ (1 << data.draw(st.integers(0, 7)))]) + frames[at + 1 :]
    with pytest.raises(MtsError, match=r"pack") as caught:
        list(read_frames(damaged))
    assert caught.value.code == "checksum_mismatch"


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_a_cut_is_an_error_unless_it_is_between_frames(payloads: list[bytes]) -> None:
    frames = b"".join(build_pack([InlineMessage("s", payload, "a/b") for payload in payloads]).body[1:])
    ends = {
        sum(len(payload) + FRAME_PREFIX for payload in payloads[:count]): count for count in range(len(payloads) + 1)
    }
    for at in range(len(frames) + 1):
        if at in ends:
            assert list(read_frames(frames[:at])) == payloads[: ends[at]]
        else:
            with pytest.raises(MtsError) as caught:
                list(read_frames(frames[:at]))
            assert caught.value.code == "checksum_mismatch"


_items = st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=10)), max_size=5)


def framed(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(struct.pack(">I", len(field)) + field for item in items for field in item)


@given(_items)
def test_a_binary_batch_is_read_item_by_item(items: list[tuple[bytes, bytes]]) -> None:
    assert list(read_batch(framed(items))) == items


@given(st.binary(max_size=3), st.lists(st.binary(max_size=10), min_size=1, max_size=5))
def test_a_binary_batch_of_alike_items_is_read_at_once(meta: bytes, payloads: list[bytes]) -> None:
    body = framed([(meta, payload) for payload in payloads])
    assert read_alike_batch(body) == (meta, payloads)
    assert read_alike_batch(body[:-1]) is None
    assert read_alike_batch(body + framed([(meta + b"x", b"")])) is None


@given(st.binary(max_size=60))
def test_what_is_read_at_once_is_what_is_read_item_by_item(body: bytes) -> None:
    found = read_alike_batch(body)
    if found is not None:
        assert list(read_batch(body)) == [(found[0], payload) for payload in found[1]]


@given(_items.filter(bool), st.data())
def test_a_binary_batch_that_ends_early_is_refused(items: list[tuple[bytes, bytes]], data: Any) -> None:
    body = framed(items)
    ends = [len(framed(items[:count])) for count in range(len(items) + 1)]
    at = data.draw(st.integers(0, len(body)).filter(lambda at: at not in ends))
    with pytest.raises(MtsError, match="ends in the middle") as caught:
        list(read_batch(body[:at]))
    assert caught.value.code == "bad_request"


@given(st.binary(max_size=60))
def test_no_bytes_make_reading_a_batch_fail_otherwise(body: bytes) -> None:
    with contextlib.suppress(MtsError):
        list(read_batch(body))


def test_large_numbers_travel_as_strings() -> None:
    assert wire_number(2**53) == 2**53
    assert wire_number(2**53 + 1) == "9007199254740993"
