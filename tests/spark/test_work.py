"""A user's work on payloads that stay in Python, on a store in memory."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent, Message
from spark_emr.reader.work import Work, check_work_options, work_on
from tests.spark.kit import options, put_pack, put_plain, read

LARGE = 100
"""Bytes above which a payload is large in these tests."""


@pytest.fixture
def store() -> MemoryPayloads:
    return MemoryPayloads()


def whole(message: Message, blocks: Iterator[bytes]) -> tuple[Any, bytes]:
    return message.sequence, b"".join(blocks)


async def worked(store: MemoryPayloads, extents: list[Extent], work: Work[Any] = whole, **changes: Any) -> list[Any]:
    limits = {"large_bytes": LARGE, **changes}
    stretches = await read(store, extents, **limits)
    return list(work_on(store, options(**limits), stretches, work))


def three(store: MemoryPayloads) -> list[Extent]:
    """A small message, and large ones before and behind the one that tests damage."""
    return [put_plain(store, 1, b"a" * 101), put_plain(store, 2, b"b" * 102), put_pack(store, 4, [b"c", b"d" * 103])]


def lose(store: MemoryPayloads, extent: Extent) -> None:
    del store.objects[extent.object_name]


def spoil(store: MemoryPayloads, extent: Extent) -> None:
    store.objects[extent.object_name].body = b"!" * extent.size


def lengthen(store: MemoryPayloads, extent: Extent) -> None:
    store.objects[extent.object_name].body += b"!"


async def test_every_payload_reaches_the_work_however_large_it_is(store: MemoryPayloads) -> None:
    found = await worked(store, three(store))
    assert sorted(found) == [(1, b"a" * 101), (2, b"b" * 102), (3, b"c"), (4, b"d" * 103)]


async def test_a_large_payload_comes_decoded_unless_told_otherwise(store: MemoryPayloads) -> None:
    stored = gzip.compress(bytes(range(256)) * 4)
    extent = put_plain(store, 1, stored, codec="gzip")
    assert await worked(store, [extent]) == [(1, bytes(range(256)) * 4)]
    assert await worked(store, [extent], decode=False) == [(1, stored)]


@pytest.mark.parametrize(
    ("damage", "code"), [(lose, "payload_missing"), (spoil, "checksum_mismatch"), (lengthen, "size_mismatch")]
)
async def test_a_large_payload_that_is_not_what_it_should_be_fails_or_is_left_out(
    store: MemoryPayloads, damage: Callable[[MemoryPayloads, Extent], None], code: str
) -> None:
    extents = three(store)
    damage(store, extents[1])
    with pytest.raises(MtsError, match="message 2 ") as caught:
        await worked(store, extents)
    assert (caught.value.code, caught.value.details["sequence"]) == (code, 2)
    assert sorted(await worked(store, extents, on_missing="skip")) == [(1, b"a" * 101), (3, b"c"), (4, b"d" * 103)]


async def test_a_large_payload_that_is_not_what_its_codec_says_is_left_out_too(store: MemoryPayloads) -> None:
    extents = [put_plain(store, 1, b"z" * 101, codec="gzip"), put_plain(store, 2, b"fine" * 50)]
    with pytest.raises(MtsError, match="message 1 is not valid gzip") as caught:
        await worked(store, extents)
    assert caught.value.details["sequence"] == 1
    assert await worked(store, extents, on_missing="skip") == [(2, b"fine" * 50)]


async def test_work_cannot_make_good_what_is_damaged(store: MemoryPayloads) -> None:
    def forgiving(message: Message, blocks: Iterator[bytes]) -> object:
        try:
            return whole(message, blocks)
        except MtsError:
            return "all is well"

    extents = three(store)
    spoil(store, extents[1])
    with pytest.raises(MtsError, match="message 2 "):
        await worked(store, extents, forgiving)
    assert "all is well" not in await worked(store, extents, forgiving, on_missing="skip")


async def test_an_error_of_the_work_is_never_left_out(store: MemoryPayloads) -> None:
    def refuse(message: Message, blocks: Iterator[bytes]) -> None:
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        await worked(store, three(store), refuse, on_missing="skip")


async def test_a_store_that_is_away_is_not_a_payload_to_leave_out(store: MemoryPayloads) -> None:
    stretches = await read(store, three(store), large_bytes=LARGE)
    store.down = True
    with pytest.raises(MtsError) as caught:
        list(work_on(store, options(large_bytes=LARGE, on_missing="skip"), stretches, whole))
    assert caught.value.code == "unavailable"


@pytest.mark.parametrize("wrong", [{"on_missing": "null"}, {"large": "chunks"}])
def test_options_that_are_for_rows_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(MtsError, match="is for rows") as caught:
        check_work_options(options(**wrong))
    assert caught.value.code == "bad_request"
