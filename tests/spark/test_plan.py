"""Plans, without Spark and without servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.message import Extent, cut_extent
from spark_emr.reader.options import ReadOptions, read_options
from spark_emr.reader.rows import within
from tests.spark.kit import pack, plain, plan


def sequences(extent: Extent) -> list[int]:
    return list(range(extent.sequence - extent.count + 1, extent.sequence + 1))


def test_every_message_is_planned_once_and_in_order() -> None:
    extents = [plain(n, 100 * KIB) for n in range(1, 400)]
    made = plan(extents, partition_bytes=4 * MIB)
    planned = [part.extent for partition in made.partitions for part in partition.parts()]
    assert planned == extents
    assert (made.messages, made.first_sequence, made.last_sequence) == (399, 1, 399)
    assert sum(partition.size for partition in made.partitions) == made.size == 399 * 100 * KIB


def test_partitions_are_balanced_by_bytes_not_by_messages() -> None:
    small = [plain(n, 1 * KIB) for n in range(1, 1001)]
    large = [plain(n, 8 * MIB) for n in range(1001, 1017)]
    made = plan(small + large, partition_bytes=32 * MIB)
    sizes = [partition.size for partition in made.partitions]
    assert len(sizes) >= 4
    assert max(sizes) <= 1.5 * sum(sizes) / len(sizes)
    assert made.partitions[0].messages > 700


def test_a_little_is_read_by_one_task_however_many_could_run() -> None:
    assert len(plan([plain(n, 10) for n in range(1, 101)], parallelism=64).partitions) == 1
    assert len(plan([plain(n, 8 * MIB) for n in range(1, 9)], parallelism=4).partitions) == 4


def test_who_wants_so_many_tasks_gets_them_as_far_as_there_are_objects() -> None:
    assert len(plan([plain(n, 10) for n in range(1, 101)], partitions=7).partitions) == 7
    assert len(plan([pack(9, [1] * 9)], partitions=7).partitions) == 1


def test_rows_of_one_pack_go_to_one_task_though_others_stand_between_them() -> None:
    name = "_mts/packs/shared"
    first = pack(10, [10] * 10, name=name)
    between = [plain(n, 4 * MIB) for n in range(11, 40)]
    again = pack(40, [10], name=name, byte_from=100)
    made = plan([first, *between, again], partition_bytes=8 * MIB)
    holding = [p.number for p in made.partitions if any(part.extent.object_name == name for part in p.parts())]
    assert len(made.partitions) > 3
    assert len(holding) == 1


def test_a_payload_that_comes_in_chunks_is_shared_by_tasks() -> None:
    huge = plain(7, 1000 * MIB)
    made = plan([plain(6, 10), huge, plain(8, 10)], large="chunks", partition_bytes=128 * MIB)
    assert len(made.partitions) >= 7
    parts = [part for partition in made.partitions for part in partition.parts() if part.chunks]
    assert sum(part.chunks for part in parts) == 125
    assert [part.first_chunk for part in parts] == sorted({part.first_chunk for part in parts})
    assert max(partition.size for partition in made.partitions) <= 160 * MIB


def test_a_payload_that_stays_in_the_store_costs_its_task_nothing() -> None:
    extents = [plain(n, 10_000 * MIB) for n in range(1, 20)]
    assert len(plan(extents, parallelism=8).partitions) == 1


def test_holes_are_told_and_may_be_an_error() -> None:
    extents = [plain(1, 10, offset=0), plain(9, 10, offset=4), plain(10, 10, offset=5)]
    (hole,) = plan(extents).holes
    assert (hole.messages, hole.after_sequence, hole.before_sequence) == (3, 1, 9)
    with pytest.raises(MtsError, match="between the sequences 1 and 9") as error:
        plan(extents, on_hole="fail")
    assert error.value.details["sequence"] == 2


def test_lanes_that_take_turns_have_no_holes() -> None:
    extents = [plain(n, 10, partition=n % 3, offset=n // 3) for n in range(30)]
    assert plan(extents).holes == ()


def test_nothing_to_read_is_a_plan_without_partitions() -> None:
    assert plan([]).partitions == []


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    bounds=st.tuples(st.integers(1, 120), st.integers(1, 120)),
)
def test_a_range_cuts_extents_where_it_begins_and_ends(counts: list[int], bounds: tuple[int, int]) -> None:
    first, last = min(bounds), max(bounds)
    extents, end = [], 0
    for count in counts:
        end += count
        own = [[index, {"own": str(end - count + 1 + index)}, None] for index in range(0, count, 2)]
        extents.append(pack(end, [end - count + 1 + index for index in range(count)], own=own, offset=end - 1))
    found = within(extents, first, last)
    assert [n for extent in found for n in sequences(extent)] == [n for n in range(1, end + 1) if first <= n <= last]
    for extent in found:
        numbers = sequences(extent)
        assert (extent.sizes or [extent.size]) == numbers  # each message's size is its sequence here
        assert extent.offset == extent.sequence - 1
        whole = next(one for one in extents if one.object_name == extent.object_name)
        before = [n for n in sequences(whole) if n < numbers[0]]
        assert extent.byte_from == 100 + sum(before) + 8 * len(before)
        for index, headers, _ in extent.own or ():
            assert headers == {"own": str(numbers[index])}


def test_an_extent_that_is_wanted_whole_is_not_copied() -> None:
    extent = pack(10, [1] * 10)
    assert cut_extent(extent, 1, 10) is extent


def test_options_are_known_in_every_spelling() -> None:
    given_options = {
        "subject": "orders",
        "fromsequence": "5",
        "toSequence": "9",
        "on_missing": "skip",
        "PAYLOAD": "true",
    }
    assert read_options(given_options) == ReadOptions("orders", 5, 9, on_missing="skip", payload=True)


def test_times_are_seconds_or_iso_8601() -> None:
    assert read_options({"subject": "a", "fromTime": "2026-01-02T00:00:00Z"}).from_time == 1767312000
    assert read_options({"subject": "a", "toTime": "1767312000"}).to_time == 1767312000


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({}, "subject is missing"),
        ({"subject": "no spaces"}, "not valid"),
        ({"subject": "a", "fromSequence": "9", "toSequence": "5"}, "fromSequence 9 is behind toSequence 5"),
        ({"subject": "a", "fromSequence": "-1"}, "whole number"),
        ({"subject": "a", "fromTime": "2", "toTime": "1"}, "fromTime must be before toTime"),
        ({"subject": "a", "fromTime": "yesterday"}, "ISO 8601"),
        ({"subject": "a", "onMissing": "ignore"}, "fail, skip, null"),
        ({"subject": "a", "payload": "maybe"}, "payload"),
        ({"subject": "a", "chunkBytes": "1KB"}, "between"),
        ({"subject": "a", "secretKey": "x"}, "no option 'secretKey'"),
    ],
)
def test_wrong_options_say_what_is_wrong(given_options: dict[str, str], told: str) -> None:
    with pytest.raises(MtsError, match=told) as error:
        read_options(given_options)
    assert error.value.code == "bad_request"
