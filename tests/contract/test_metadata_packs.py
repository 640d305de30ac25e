"""Packs: what is committed of them, once, and what goes to the trash: one contract, the fake and Tarantool."""

from __future__ import annotations

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.domain.upload import State
from tests.contract.metadata_kit import MANY, PACK_GRACE, TRASH_GRACE, Kit, error_of, receipts_of


async def test_a_pack_gives_one_extent_a_subject(kit: Kit) -> None:
    other = kit.subject + ".other"
    messages = [kit.message(b"a"), kit.message(b"bb", subject=other), kit.message(b"ccc"), kit.message(b"")]
    name = await kit.pack_name()

    receipts = receipts_of(await kit.publish(*messages, name=name))

    assert [receipt.state for receipt in receipts] == [State.COMMITTED] * 4
    (extent,) = (await kit.store.get_messages(kit.subject, 1, 10)).extents
    assert (extent.count, extent.size, extent.sizes, extent.object_name) == (3, 4, [1, 3, 0], name)
    assert [receipts[index].sequence for index in (0, 2, 3)] == [
        extent.sequence - 2,
        extent.sequence - 1,
        extent.sequence,
    ]
    assert [receipts[index].offset for index in (0, 2, 3)] == [0, 1, 2]
    (single,) = (await kit.store.get_messages(other, 1, 10)).extents
    assert (single.count, single.sizes, single.size) == (1, None, 2)
    assert single.byte_from == (extent.byte_from or 0) + extent.size + 3 * FRAME_PREFIX
    assert name not in await kit.trash()


async def test_a_named_producers_batch_is_one_extent(kit: Kit) -> None:
    receipts = receipts_of(await kit.publish(*(kit.message(producer_id="p", seqno=i) for i in (1, 2, 5, 9))))
    assert [receipt.duplicate for receipt in receipts] == [False] * 4
    (extent,) = (await kit.store.get_messages(kit.subject, 1, 10)).extents
    assert extent.count == 4
    again = receipts_of(await kit.publish(*(kit.message(producer_id="p", seqno=i) for i in (9, 5, 2, 1))))
    assert [receipt.sequence for receipt in again] == [receipt.sequence for receipt in reversed(receipts)]


async def test_stored_items_of_a_batch_are_duplicates_and_the_rest_is_stored(kit: Kit) -> None:
    (first,) = receipts_of(await kit.publish(kit.message(producer_id="p", seqno=2)))
    results = await kit.publish(*(kit.message(bytes(i), producer_id="p", seqno=i) for i in (1, 2, 3, 3, 4)))
    assert error_of(results[0]).code == "seqno_skipped"
    receipts = receipts_of(results[1:])
    assert [receipt.duplicate for receipt in receipts] == [True, False, True, False]
    assert receipts[0].sequence == first.sequence
    assert receipts[2].sequence == receipts[1].sequence
    extents = (await kit.store.get_messages(kit.subject, (first.sequence or 0) + 1, 10)).extents
    assert [(extent.count, extent.size) for extent in extents] == [(1, 3), (1, 4)]
    assert extents[1].byte_from == (extents[0].byte_from or 0) + 3 + 3 + 2 * FRAME_PREFIX


async def test_a_frame_behind_an_open_seqno_waits_and_points_into_the_pack(kit: Kit) -> None:
    first = await kit.named(1)
    name = await kit.pack_name()
    messages = [
        kit.message(b"free"),
        kit.message(b"waits", producer_id="p", seqno=2, headers={"h": "1"}, content_type="text/html"),
        kit.message(b"free too"),
    ]
    receipts = receipts_of(await kit.publish(*messages, name=name))
    assert [receipt.state for receipt in receipts] == [State.COMMITTED, State.STORED, State.COMMITTED]
    assert receipts[1].waits_for == first.id
    assert receipts[1].upload_id is not None
    waiting = await kit.store.get_upload(receipts[1].upload_id)
    assert waiting is not None
    assert (waiting[0].object_name, waiting[0].size, waiting[0].state) == (name, 5, State.STORED)

    await kit.store.abort_upload(first.id)

    extents = (await kit.store.get_messages(kit.subject, 1, 10)).extents
    assert [(extent.object_name, extent.size) for extent in extents] == [(name, 4), (name, 8), (name, 5)]
    last = extents[2]
    assert last.byte_from == (extents[0].byte_from or 0) + 4 + FRAME_PREFIX
    assert (last.headers, last.content_type) == ({"h": "1"}, "text/html")
    assert await kit.due() == []


async def test_a_pack_goes_to_the_trash_when_its_last_reference_ends(kit: Kit) -> None:
    await kit.named(1)
    name = await kit.pack_name()
    messages = [kit.message(producer_id="p", seqno=seqno) for seqno in (2, 3)]
    receipts = receipts_of(await kit.publish(*messages, name=name))
    for receipt in receipts:
        assert name not in await kit.trash()
        await kit.store.abort_upload(receipt.upload_id or "")
    assert name not in await kit.trash()  # a message of it may have been seen
    await kit.advance(TRASH_GRACE)
    assert name in await kit.trash()


async def test_a_pack_with_a_message_outlives_its_waiting_frames(kit: Kit) -> None:
    await kit.named(1)
    name = await kit.pack_name()
    receipts = receipts_of(await kit.publish(kit.message(producer_id="p", seqno=2), kit.message(), name=name))
    await kit.store.abort_upload(receipts[0].upload_id or "")
    assert name not in await kit.trash()


async def test_an_announced_seqno_cannot_be_published_inline(kit: Kit) -> None:
    upload = await kit.named(1)
    (result,) = await kit.publish(kit.message(producer_id="p", seqno=1))
    assert (error_of(result).code, error_of(result).details) == ("seqno_in_use", {"upload_id": upload.id})


async def test_an_epoch_nobody_gave_stores_nothing_and_makes_no_subject(kit: Kit) -> None:
    name = await kit.pack_name()
    (result,) = await kit.publish(kit.message(producer_id="new", seqno=1, epoch=1), name=name)
    assert error_of(result).code == "bad_request"
    assert name in await kit.trash()
    assert kit.subject not in [entry["subject"] for entry in (await kit.store.subjects("", MANY))[0]]


async def test_a_pack_of_duplicates_goes_to_the_trash(kit: Kit) -> None:
    await kit.publish(kit.message(key="k", digest="d"))
    name = await kit.pack_name()
    await kit.publish(kit.message(key="k", digest="d"), name=name)
    assert name in await kit.trash()


async def test_an_idempotency_key_stores_once_for_a_day(kit: Kit) -> None:
    results = await kit.publish(
        kit.message(key="k", digest="d"), kit.message(key="k", digest="d"), kit.message(key="k", digest="other")
    )
    first, again = receipts_of(results[:2])
    assert (first.duplicate, again.duplicate, again.sequence) == (False, True, first.sequence)
    assert error_of(results[2]).code == "idempotency_conflict"
    assert error_of(results[2]).details == {"key": "k"}
    (elsewhere,) = receipts_of(await kit.publish(kit.message(key="k", digest="d", subject=kit.subject + ".b")))
    assert not elsewhere.duplicate

    await kit.advance(24 * 3600 + 2)
    (new,) = receipts_of(await kit.publish(kit.message(key="k", digest="other")))
    assert not new.duplicate


async def test_old_idempotency_keys_are_forgotten(kit: Kit) -> None:
    await kit.advance(24 * 3600 + 2)
    while await kit.store.trim_idempotency():
        pass
    await kit.publish(*(kit.message(key=f"k{i}", digest="d") for i in range(3)))
    assert await kit.store.trim_idempotency() == 0
    await kit.advance(24 * 3600 + 2)
    assert await kit.store.trim_idempotency() == 3
    assert await kit.store.trim_idempotency() == 0


async def test_a_pack_older_than_half_its_grace_is_refused(kit: Kit) -> None:
    name = await kit.pack_name()
    await kit.advance(PACK_GRACE / 2 + 1)
    with pytest.raises(MtsError) as caught:
        await kit.publish(kit.message(), name=name)
    assert caught.value.code == "unavailable"
    assert await kit.sequences() == []
    assert name in await kit.trash(), "the walk over the packs may have passed it already"


async def test_packs_nobody_committed_are_discarded_after_their_grace(kit: Kit) -> None:
    foreign = ["_mts/packs/0", "_mts/packs/00000000-note.txt", "_mts/packs/00000000/"]
    committed, lost, nested = [await kit.pack_name() for _ in range(3)]
    await kit.publish(kit.message(), name=committed)
    nested = nested.replace("_mts/packs/", "_mts/packs/0000/")
    await kit.advance(PACK_GRACE + 1)
    young = await kit.pack_name()
    cursor = await kit.store.packs_cursor()

    listed = [*foreign, nested, *sorted([committed, lost]), young]
    assert await kit.store.settle_packs(cursor, listed) == (6, 1)

    trash = await kit.trash()
    assert [name for name in listed if name in trash] == [lost]
    assert await kit.store.packs_cursor() == max(committed, lost)
    assert await kit.store.settle_packs(cursor, [young]) == (0, 0)


async def test_the_walk_over_packs_goes_back_with_a_clock_that_is_set_back(kit: Kit) -> None:
    before = await kit.pack_name()
    await kit.advance(PACK_GRACE + 1)
    await kit.store.settle_packs(await kit.store.packs_cursor(), [before])
    await kit.advance(-10 * PACK_GRACE)
    lost = await kit.pack_name()

    assert await kit.store.settle_packs(await kit.store.packs_cursor(), [lost, before]) == (0, 0), "still young"
    await kit.advance(PACK_GRACE + 1)

    cursor = await kit.store.packs_cursor()
    assert cursor < lost
    assert await kit.store.settle_packs(cursor, [lost, before]) == (1, 1)
    assert lost in await kit.trash()


async def test_nothing_is_committed_from_the_trash(kit: Kit) -> None:
    name = await kit.pack_name()
    await kit.store.trash_done([name])
    await kit.publish(kit.message(producer_id="new", seqno=1, epoch=5), name=name)
    with pytest.raises(MtsError) as caught:
        await kit.publish(kit.message(), name=name)
    assert caught.value.code == "unavailable"


async def test_a_codec_is_kept_by_every_way_to_publish(kit: Kit) -> None:
    await kit.commit(await kit.open(codec="gzip"))
    blocking = await kit.named(1)
    (waiting,) = await kit.publish(kit.message(producer_id="p", seqno=2, codec="gzip"))
    assert waiting.receipt is not None
    assert waiting.receipt.state is State.STORED
    await kit.publish(kit.message(codec="zstd"), kit.message(codec="zstd"), kit.message())
    await kit.commit(blocking)
    page = await kit.store.get_messages(kit.subject, 1, MANY)
    assert [(extent.codec, extent.count) for extent in page.extents] == [
        ("gzip", 1),
        ("zstd", 2),
        (None, 1),
        (None, 1),
        ("gzip", 1),
    ]


async def test_messages_of_a_group_are_stored_like_others(kit: Kit) -> None:
    results = await kit.publish(*(kit.message(str(n).encode(), group="ab"[n % 2]) for n in range(4)))
    assert [receipt.offset for receipt in receipts_of(results)] == [0, 1, 2, 3]
