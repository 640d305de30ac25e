"""Which frames of a pack lie side by side: lanes keep their order, whatever is known of them."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.lanes import HASHES, Lanes, arrange, hash_of, one_lane
from minitoolstream.domain.pack import InlineMessage, build_pack, read_frames

QUARTERS = Lanes.of((place * HASHES // 4, partition) for place, partition in enumerate((7, 0, 5, 6)))


def lanes_of(subject: str) -> Lanes | None:
    return QUARTERS if subject == "many" else None


_messages = st.builds(
    InlineMessage,
    subject=st.sampled_from(["many", "one"]),
    data=st.binary(max_size=8),
    content_type=st.just("text/plain"),
    producer_id=st.none() | st.sampled_from(["p", "q"]),
    seqno=st.integers(0, 9),
    group=st.none() | st.sampled_from(["a", "b", "c", "d", "é"]),
    codec=st.sampled_from([None, None, None, "gzip", "zstd"]),
)


def must_stay_in_order(message: InlineMessage) -> list[Hashable]:
    """What a message shares its order with."""
    if message.subject == "one":
        return ["subject"]
    if message.producer_id is not None:
        return [("producer", message.producer_id)]
    return [("group", message.group)]


@given(st.lists(_messages, max_size=40))
def test_every_message_is_packed_once_and_each_run_has_one_subject_and_codec(messages: list[InlineMessage]) -> None:
    runs = arrange(messages, lanes_of)
    assert sorted(index for run in runs for index in run) == list(range(len(messages)))
    for run in runs:
        assert len({(messages[index].subject, messages[index].codec) for index in run}) == 1


@given(st.lists(_messages, max_size=40))
def test_what_must_keep_its_order_keeps_it(messages: list[InlineMessage]) -> None:
    seen: dict[Hashable, list[int]] = {}
    for index in (index for run in arrange(messages, lanes_of) for index in run):
        for shared in must_stay_in_order(messages[index]):
            seen.setdefault((messages[index].subject, shared), []).append(index)
    assert all(indexes == sorted(indexes) for indexes in seen.values())


@given(st.lists(_messages, max_size=40))
def test_the_lanes_of_a_subject_lie_side_by_side(messages: list[InlineMessage]) -> None:
    order = [messages[index] for run in arrange(messages, lanes_of) for index in run]
    lanes = [
        message.producer_id or (message.group and QUARTERS.partition_of(message.group))
        for message in order
        if message.subject == "many"
    ]
    changes = sum(1 for one, other in pairwise(lanes) if one != other)
    assert changes <= max(len(set(lanes)) - 1, 0)


@given(st.lists(_messages, min_size=1, max_size=30))
def test_a_groups_indexes_say_whose_frames_it_holds(messages: list[InlineMessage]) -> None:
    pack = build_pack(messages, lanes_of)
    frames = list(read_frames(b"".join(pack.body[1:])))
    indexes = [index for group in pack.groups for index in group.indexes]
    assert [messages[index].data for index in indexes] == frames
    for group in pack.groups:
        marks = {mark["index"]: mark for mark in group.marks}
        for place, index in enumerate(group.indexes):
            message, mark = messages[index], marks.get(place, {})
            assert (message.codec, message.subject) == (group.codec, group.subject)
            assert mark.get("producer_id") == message.producer_id
            assert mark.get("group") == message.group
            assert mark.get("hash") == (None if message.group is None else crc32(message.group.encode()))


def test_without_several_lanes_the_order_is_that_of_arrival() -> None:
    messages = [InlineMessage("s", b"", "a/b", group=group) for group in "abcabc"]
    assert arrange(messages, one_lane) == [range(6)]


def test_a_producers_groups_stay_interleaved_since_its_seqnos_must_be_met_in_order() -> None:
    messages = [InlineMessage("many", b"", "a/b", producer_id="p", seqno=n, group="ab"[n % 2]) for n in range(4)]
    assert arrange(messages, lanes_of) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("group", ["", "a", "order-17", "é", "x" * 2048])
def test_a_group_goes_to_the_partition_whose_hashes_hold_it(group: str) -> None:
    assert hash_of(group) == crc32(group.encode())
    assert QUARTERS.partition_of(group) == (7, 0, 5, 6)[hash_of(group) * 4 // HASHES]
