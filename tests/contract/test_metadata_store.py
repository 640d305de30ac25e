"""What readers, waiting hosts and operators ask the store for: one contract, the fake and Tarantool."""

from __future__ import annotations

import asyncio
import uuid
from typing import Literal

from minitoolstream.domain.consumer import Condition
from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.domain.message import Extent, messages_of
from minitoolstream.domain.pack import FRAME_PREFIX, InlineMessage
from tests.contract.metadata_kit import MANY, Kit, receipts_of

# -- what a reader may ask for


async def test_a_page_cuts_extents_at_its_limit_and_at_its_start(kit: Kit) -> None:
    messages = [kit.message(bytes(size), headers={"n": str(size)} if size % 2 else {}) for size in range(6)]
    sequences = [receipt.sequence for receipt in receipts_of(await kit.publish(*messages))]
    assert sequences[2] is not None
    whole = (await kit.store.get_messages(kit.subject, 1, 10)).extents[0]

    page = await kit.store.get_messages(kit.subject, sequences[2], 3)

    (extent,) = page.extents
    assert (extent.sequence, extent.count, extent.offset, extent.sizes) == (sequences[4], 3, 4, [2, 3, 4])
    assert extent.byte_from == (whole.byte_from or 0) + 0 + 1 + 2 * FRAME_PREFIX
    assert page.next_sequence == sequences[5]
    shown = [(item.message.size, item.message.headers) for item in messages_of(extent)]
    assert shown == [(2, {}), (3, {"n": "3"}), (4, {})]
    one = await kit.store.get_message(sequences[3] or 0)
    assert one is not None
    assert (one.sequence, one.count, one.offset, one.size, one.sizes) == (sequences[3], 1, 3, 3, None)
    assert [item.message.headers for item in messages_of(one)] == [{"n": "3"}]


async def test_a_page_of_whole_extents_is_not_cut_at_its_limit(kit: Kit) -> None:
    for _ in range(2):
        await kit.publish(*(kit.message() for _ in range(4)))
    page = await kit.store.get_messages(kit.subject, 1, 2, whole=True)
    assert [extent.count for extent in page.extents] == [4]
    assert page.next_sequence == page.extents[0].sequence + 1
    rest = await kit.store.get_messages(kit.subject, page.next_sequence, 100, whole=True)
    assert [extent.count for extent in rest.extents] == [4]
    assert rest.next_sequence == rest.watermark + 1


async def test_a_walk_gives_every_extent_of_a_range_once_however_small_its_pages_are(kit: Kit) -> None:
    for count in (3, 1, 4, 1, 2):
        await kit.publish(*(kit.message(headers={"n": str(count)}) for _ in range(count)))
    rows = (await kit.store.get_messages(kit.subject, 1, 100, whole=True)).extents
    ends = (rows[0].sequence, rows[3].sequence)

    async def walked(first: int, last: int, **more: int) -> list[list[Extent]]:
        return [page async for page in kit.store.walk_extents(kit.subject, first, last, **more)]

    for at_once in (1, 2, 3, 100):
        pages = await walked(1, MAX_SEQUENCE, at_once=at_once)
        assert [row for page in pages for row in page] == rows
    assert len(await walked(1, MAX_SEQUENCE, at_once=1)) == 5
    part = [row for page in await walked(*ends, at_once=1) for row in page]
    assert (part[0].count, part[1:]) == (1, rows[1:4])
    assert [row for page in await walked(ends[1], ends[0]) for row in page] == []
    assert [row for page in await walked(1, MAX_SEQUENCE, partition=7) for row in page] == []


async def test_a_walk_that_is_left_asks_for_no_more(kit: Kit) -> None:
    for _ in range(3):
        await kit.publish(kit.message())
    walk = kit.store.walk_extents(kit.subject, 1, MAX_SEQUENCE, at_once=1)
    assert len(await anext(walk)) == 1
    await walk.aclose()
    assert len((await kit.store.get_messages(kit.subject, 1, 5)).extents) == 3


async def test_a_page_ends_behind_its_last_message_when_more_follow(kit: Kit) -> None:
    receipts = [await kit.commit(await kit.open()) for _ in range(3)]
    page = await kit.store.get_messages(kit.subject, 0, 2)
    assert [extent.sequence for extent in page.extents] == [receipt.sequence for receipt in receipts[:2]]
    assert page.next_sequence == (receipts[1].sequence or 0) + 1
    beyond = await kit.store.get_messages(kit.subject, page.watermark + 10, 2)
    assert (beyond.extents, beyond.next_sequence) == ([], page.watermark + 1)


async def test_a_partition_without_messages_is_empty(kit: Kit) -> None:
    await kit.publish(kit.message())
    assert (await kit.store.get_messages(kit.subject, 1, 5, partition=1)).extents == []
    assert len((await kit.store.get_messages(kit.subject, 1, 5, partition=0)).extents) == 1


async def test_there_is_no_message_below_the_first_nor_above_the_last(kit: Kit) -> None:
    (receipt,) = receipts_of(await kit.publish(kit.message()))
    assert receipt.sequence is not None
    assert await kit.store.get_message(0) is None
    assert await kit.store.get_message(receipt.sequence + 1) is None
    assert await kit.store.latest_sequence(kit.subject) == receipt.sequence
    assert await kit.store.latest_sequence(kit.subject + ".never") == 0


async def test_a_filter_leaves_out_what_does_not_fit(kit: Kit) -> None:
    colours = ["red", "blue", "red dark", "red", None]
    headers = [{} if colour is None else {"colour": colour} for colour in colours]
    await kit.publish(*(InlineMessage(kit.subject, b"x", "text/plain", one) for one in headers))
    sequences = await kit.sequences()

    async def found(op: Literal["equals", "prefix"], limit: int = 10) -> tuple[list[int], int]:
        conditions = (Condition("colour", op, "red"),)
        page = await kit.store.get_messages(kit.subject, 1, limit, conditions=conditions)
        placed = [item.message for extent in page.extents for item in messages_of(extent)]
        assert all((message.headers["colour"] + " ").startswith("red ") for message in placed)
        return [int(message.sequence) for message in placed], page.next_sequence

    assert (await found("equals"))[0] == [sequences[0], sequences[3]]
    assert (await found("prefix"))[0] == [sequences[0], sequences[2], sequences[3]]
    some, following = await found("prefix", 2)
    assert some == [sequences[0], sequences[2]]
    assert following == sequences[2] + 1
    none = (Condition("colour", "equals", "green"),)
    page = await kit.store.get_messages(kit.subject, 1, 10, conditions=none)
    assert (page.extents, page.next_sequence) == ([], page.watermark + 1)


async def test_a_time_leads_to_the_first_message_since(kit: Kit) -> None:
    began = await kit.store.now_ms() // 1000
    first = (await kit.commit(await kit.open())).sequence
    await kit.advance(100)
    second = (await kit.commit(await kit.open())).sequence
    assert await kit.store.sequence_at(kit.subject, 0) == first
    assert await kit.store.sequence_at(kit.subject, began + 50) == second
    end = (await kit.store.get_messages(kit.subject, MANY * MANY, 1)).watermark + 1
    assert await kit.store.sequence_at(kit.subject, began + 1000) == end
    assert await kit.store.sequence_at("nobody-writes-here", 0) == end


# -- the trash


async def test_the_trash_keeps_what_the_store_did_not_confirm(kit: Kit) -> None:
    gone, stays = await kit.open(), await kit.open()
    for upload in (gone, stays):
        await kit.store.abort_upload(upload.id)
    await kit.store.trash_done([gone.object_name, "m/unknown"])
    await kit.store.trash_postpone([stays.object_name, "m/unknown"], 300)
    assert not {gone.object_name, stays.object_name} & set(await kit.trash())
    await kit.advance(301)
    assert gone.object_name not in await kit.trash()
    assert stays.object_name in await kit.trash()


async def test_the_trash_comes_in_bounded_portions(kit: Kit) -> None:
    for _ in range(3):
        await kit.store.abort_upload((await kit.open()).id)
    assert len(await kit.store.trash_due(2)) == 2


# -- waiting


async def test_whoever_waits_is_told_what_changed(kit: Kit) -> None:
    start = await kit.store.wait_for_changes(("", 0), 5)
    assert (start.lost, start.upload_ids, start.names) == (True, [], [])
    first, second = await kit.named(1), await kit.named(2)

    waiting = asyncio.ensure_future(kit.store.wait_for_changes(start.cursor, 20))
    await kit.commit(second)
    stored = await waiting
    assert (stored.lost, stored.upload_ids, stored.names) == (False, [second.id], [])
    await kit.commit(first)
    committed = await kit.store.wait_for_changes(stored.cursor, 20)
    assert set(committed.upload_ids) == {first.id, second.id}
    assert committed.names == [kit.subject]

    nothing = await kit.store.wait_for_changes(committed.cursor, 0.01)
    assert (nothing.cursor, nothing.lost, nothing.upload_ids) == (committed.cursor, False, [])


# -- for operators and hosts


async def test_a_lease_belongs_to_one_owner_until_it_ends(kit: Kit) -> None:
    name = uuid.uuid4().hex
    assert await kit.store.take_lease(name, "a", 100)
    assert await kit.store.take_lease(name, "a", 100)
    assert not await kit.store.take_lease(name, "b", 100)
    await kit.advance(101)
    assert await kit.store.take_lease(name, "b", 100)
    assert not await kit.store.take_lease(name, "a", 100)


async def test_the_status_counts_what_is_there(kit: Kit) -> None:
    before = await kit.store.status()
    upload = await kit.open()
    await kit.commit(upload)
    await kit.publish(*(kit.message() for _ in range(5)))
    await kit.store.abort_upload((await kit.open()).id)
    await kit.store.reject_event("some/key", "foreign_object")
    after = await kit.store.status()
    grown = {name: after[name] - before[name] for name in ("subjects", "rows", "uploads", "trash", "watermark")}
    assert grown == {"subjects": 1, "rows": 2, "uploads": 2, "trash": 1, "watermark": 6}
    newest = after["rejected_events"][0]
    assert (newest["object_name"], newest["reason"]) == ("some/key", "foreign_object")
    assert before.keys() | {"next_due_at"} == after.keys() | {"next_due_at"}


async def test_subjects_come_with_their_counters(kit: Kit) -> None:
    await kit.publish(*(kit.message(b"1234") for _ in range(3)))
    (entry,), _ = await kit.store.subjects(kit.subject[:-1], 1)
    assert entry["subject"] == kit.subject
    assert (entry["partitions"], entry["messages"], entry["bytes"]) == (1, 3, 12)


async def test_the_stores_clock_is_told_in_milliseconds(kit: Kit) -> None:
    before = await kit.store.now_ms()
    await kit.advance(100)
    assert 100_000 <= await kit.store.now_ms() - before < 110_000
    await kit.store.check()


async def test_a_lease_from_before_the_clock_was_set_back_is_free(kit: Kit) -> None:
    assert await kit.store.take_lease("walk", "one", 20)
    await kit.advance(-86_400)
    assert await kit.store.take_lease("walk", "two", 20)
    assert not await kit.store.take_lease("walk", "one", 20)
    await kit.advance(86_400)


async def test_subjects_are_listed_by_prefix(kit: Kit) -> None:
    names = [f"{kit.subject}-{number}" for number in range(3)]
    for name in (*names, f"{kit.subject}x"):
        await kit.open(subject=name)
    found = [entry["subject"] for entry in (await kit.store.subjects("", MANY, f"{kit.subject}-"))[0]]
    assert found == names
    page, more = await kit.store.subjects(names[0], 1, f"{kit.subject}-")
    assert ([entry["subject"] for entry in page], more) == (names[1:2], len(names) > 2)
