"""Uploads from ticket to end, and the walk of the reconciler over them: one contract, the fake and Tarantool."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import FRAME_PREFIX
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import Receipt, State, StoredObject, UploadSpec
from tests.contract.metadata_kit import FIRST_LOOK, GRACE, LIFE, MANY, MAX_LIFE, PRODUCER_LIFE, Kit

# -- tickets


async def test_a_ticket_opens_an_upload_under_a_key_of_its_own(kit: Kit) -> None:
    upload = await kit.open(7, sha256="a" * 64, part_size=5)

    assert upload.object_name.startswith(f"m/{kit.subject}/")
    assert upload.object_name.endswith(f"/{upload.id}")
    assert (upload.state, upload.size, upload.content_type, upload.sha256) == (State.OPEN, 7, "text/plain", "a" * 64)
    assert (upload.part_size, upload.multipart_id, upload.parts_seen, upload.byte_from) == (5, None, 0, None)
    assert upload.expires_at - upload.created_at == LIFE
    found = await kit.store.get_upload(upload.id)
    assert found == (upload, Receipt(State.OPEN, upload.id))


async def test_a_named_producers_ticket_lives_shorter(kit: Kit) -> None:
    upload = await kit.named(5)
    assert upload.expires_at - upload.created_at == PRODUCER_LIFE
    assert (upload.producer_id, upload.seqno) == ("p", 5)


async def test_ids_made_later_sort_later(kit: Kit) -> None:
    first = await kit.open()
    await kit.advance(1)
    assert first.id < (await kit.open()).id


async def test_tickets_are_made_all_or_none(kit: Kit) -> None:
    good = UploadSpec(1, "text/plain")
    with pytest.raises(MtsError, match="never given"):
        await kit.store.create_uploads(
            kit.subject, [good, UploadSpec(1, "text/plain", producer_id="p", seqno=1, epoch=9)]
        )
    names = [entry["subject"] for entry in (await kit.store.subjects("", MANY))[0]]
    assert kit.subject not in names
    await kit.advance(LIFE)
    assert await kit.due() == []


async def test_tickets_that_fail_together_leave_open_ones_as_they_were(kit: Kit) -> None:
    upload = await kit.named(1)
    await kit.advance(100)
    specs = [UploadSpec(3, "text/plain", producer_id="p", seqno=seqno) for seqno in (1, 2)]
    with pytest.raises(MtsError):
        await kit.store.create_uploads(kit.subject, [*specs, UploadSpec(9, "text/plain", producer_id="p", seqno=1)])
    assert await kit.store.get_upload(upload.id) == (upload, Receipt(State.OPEN, upload.id))
    receipt = await kit.commit(upload)
    assert receipt.state is State.COMMITTED
    assert (await kit.named(2)).id != upload.id


async def test_nobody_knows_an_upload_that_was_never_made(kit: Kit) -> None:
    unknown = new_id(1)
    assert await kit.store.get_upload(unknown) is None
    assert await kit.store.commit_uploads([StoredObject(unknown, "m/x/1/" + unknown, 1)]) == [None]
    calls: list[Awaitable[Any]] = [
        kit.store.abort_upload(unknown),
        kit.store.expire_upload(unknown),
        kit.store.set_multipart(unknown, "m"),
        kit.store.extend_upload(unknown),
    ]
    for call in calls:
        with pytest.raises(MtsError) as caught:
            await call
        assert caught.value.code == "not_found"
    await kit.store.resume_upload(unknown)
    await kit.store.postpone_upload(unknown, 1)
    await kit.store.settle_upload(unknown, object_is_there=True)


async def test_the_first_multipart_id_counts(kit: Kit) -> None:
    upload = await kit.open()
    assert (await kit.store.set_multipart(upload.id, "one")).multipart_id == "one"
    assert (await kit.store.set_multipart(upload.id, "two")).multipart_id == "one"


async def test_a_multipart_id_that_the_store_lost_is_replaced_once(kit: Kit) -> None:
    upload = await kit.open()
    await kit.store.set_multipart(upload.id, "one")
    await kit.store.postpone_upload(upload.id, 3)
    replaced = await kit.store.set_multipart(upload.id, "two", "one")
    assert (replaced.multipart_id, replaced.parts_seen) == ("two", 0)
    assert (await kit.store.set_multipart(upload.id, "three", "one")).multipart_id == "two"
    assert (await kit.store.set_multipart(upload.id, None, "one")).multipart_id == "two"
    assert (await kit.store.set_multipart(upload.id, None, "two")).multipart_id is None
    assert (await kit.store.set_multipart(upload.id, "four")).multipart_id == "four"


@pytest.mark.parametrize(("named", "life"), [({}, LIFE), ({"producer_id": "p", "seqno": 1}, PRODUCER_LIFE)])
async def test_a_ticket_is_extended_by_its_own_life_up_to_the_longest(
    kit: Kit, named: dict[str, Any], life: int
) -> None:
    signed, arrived = await kit.open(**named), await kit.open(subject=f"{kit.subject}.2", **named)
    await kit.advance(500)
    await kit.store.postpone_upload(arrived.id, 1)
    found = await kit.store.get_upload(arrived.id)
    assert found is not None
    for extended in (await kit.store.extend_upload(signed.id), found[0]):
        assert 0 <= extended.expires_at - extended.created_at - 500 - life < 60
    await kit.advance(MAX_LIFE - 510)
    assert (await kit.store.extend_upload(signed.id)).expires_at == signed.created_at + MAX_LIFE


async def test_an_ended_upload_is_neither_extended_nor_given_parts(kit: Kit) -> None:
    upload = await kit.open()
    await kit.store.abort_upload(upload.id)
    for call in (kit.store.extend_upload(upload.id), kit.store.set_multipart(upload.id, "m")):
        with pytest.raises(MtsError) as caught:
            await call
        assert (caught.value.code, caught.value.details["state"]) == ("upload_final", "aborted")


# -- commit


async def test_a_commit_makes_the_message_visible(kit: Kit) -> None:
    before = await kit.store.get_messages(kit.subject, 1, 10)
    upload = await kit.open(4, headers={"a": "b"}, sha256="c" * 64)

    receipt = await kit.commit(upload)

    assert receipt == Receipt(State.COMMITTED, upload.id, before.watermark + 1, 0, 0)
    page = await kit.store.get_messages(kit.subject, 1, 10)
    (extent,) = page.extents
    assert (extent.sequence, extent.headers, extent.object_name) == (receipt.sequence, {"a": "b"}, upload.object_name)
    assert (extent.subject, extent.partition, extent.offset, extent.count) == (kit.subject, 0, 0, 1)
    assert (extent.size, extent.content_type, extent.sha256) == (4, "text/plain", "c" * 64)
    assert (extent.byte_from, extent.sizes, extent.own, extent.unverified) == (None, None, None, None)
    assert page.latest_sequence == page.watermark == receipt.sequence
    assert page.next_sequence == page.watermark + 1
    assert await kit.store.get_upload(upload.id) is not None


async def test_the_first_commit_counts_and_the_rest_get_its_answer(kit: Kit) -> None:
    upload = await kit.open()
    first = await kit.commit(upload)
    again = await kit.commit(upload)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.sequence, again.partition, again.offset) == (first.sequence, first.partition, first.offset)
    assert await kit.sequences() == [first.sequence]


async def test_many_are_committed_in_the_order_given(kit: Kit) -> None:
    uploads = [await kit.open() for _ in range(3)]
    unknown = new_id(1)
    stored = [StoredObject(upload.id, upload.object_name, 3) for upload in reversed(uploads)]

    receipts = await kit.store.commit_uploads([*stored, StoredObject(unknown, "m/x/1/y", 3), stored[0]])

    assert receipts[3] is None
    sequences = [receipt.sequence for receipt in receipts if receipt]
    assert sequences == [*await kit.sequences(), sequences[0]]
    assert [receipt.offset for receipt in receipts if receipt] == [0, 1, 2, 0]


async def test_a_payload_of_another_size_is_rejected_and_goes_to_the_trash(kit: Kit) -> None:
    upload = await kit.open(3)
    receipt = await kit.commit(upload, 4)
    assert (receipt.state, receipt.reason) == (State.REJECTED, "size_mismatch: announced 3, stored 4")
    assert upload.object_name in await kit.trash()
    assert await kit.sequences() == []
    newest = (await kit.store.status())["rejected_events"][0]
    assert (newest["object_name"], newest["reason"]) == (upload.object_name, receipt.reason)


async def test_a_committed_upload_ignores_what_size_comes_later(kit: Kit) -> None:
    upload = await kit.open(3)
    await kit.commit(upload)
    assert (await kit.commit(upload, 99)).state is State.COMMITTED
    assert upload.object_name not in await kit.trash()


async def test_an_object_of_another_key_is_nobodys_even_with_a_known_id(kit: Kit) -> None:
    upload = await kit.open()
    stored = StoredObject(upload.id, f"m/{kit.subject}/0/{upload.id}", upload.size)
    assert await kit.store.commit_uploads([stored]) == [None]
    assert await kit.state(upload) is State.OPEN


async def test_a_pack_uploaded_by_its_producer_is_an_extent(kit: Kit) -> None:
    head, sizes = 20, (5, 0, 7)
    size = head + sum(sizes) + FRAME_PREFIX * len(sizes)
    receipt = await kit.commit(await kit.open(size, sizes=sizes))
    page = await kit.store.get_messages(kit.subject, 1, 10)
    (extent,) = page.extents
    assert (extent.count, extent.size, extent.byte_from, extent.sizes) == (3, 12, head, [5, 0, 7])
    assert (receipt.sequence, receipt.offset) == (extent.sequence, 2)


async def test_a_producers_pack_of_one_message_keeps_its_frame(kit: Kit) -> None:
    await kit.commit(await kit.open(5 + FRAME_PREFIX, sizes=(5,)))
    (extent,) = (await kit.store.get_messages(kit.subject, 1, 10)).extents
    assert (extent.count, extent.size, extent.byte_from) == (1, 5, 0)


# -- abort, expiry, the walk of the reconciler


async def test_an_abort_is_final_and_idempotent(kit: Kit) -> None:
    upload, in_parts = await kit.open(), await kit.open(20, part_size=10)
    await kit.store.abort_upload(in_parts.id)
    for _ in range(2):
        described, receipt, in_trash = await kit.store.abort_upload(upload.id)
        assert (described.state, receipt.state, in_trash) == (State.ABORTED, State.ABORTED, True)
        assert receipt.reason == "aborted by the producer"
    trash = await kit.trash()
    assert (trash[upload.object_name], trash[in_parts.object_name]) == (False, True)
    assert (await kit.commit(upload)).state is State.ABORTED
    assert await kit.sequences() == []


async def test_a_committed_upload_cannot_be_aborted(kit: Kit) -> None:
    upload = await kit.open()
    receipt = await kit.commit(upload)
    with pytest.raises(MtsError) as caught:
        await kit.store.abort_upload(upload.id)
    assert caught.value.code == "upload_final"
    assert caught.value.details["sequence"] == receipt.sequence
    assert upload.object_name not in await kit.trash()


async def test_an_object_that_comes_after_its_upload_ended_goes_to_the_trash_again(kit: Kit) -> None:
    upload = await kit.open()
    await kit.store.abort_upload(upload.id)
    await kit.store.trash_done([upload.object_name])
    assert upload.object_name not in await kit.trash()
    assert (await kit.store.abort_upload(upload.id))[2] is False
    assert (await kit.commit(upload)).state is State.ABORTED
    assert upload.object_name in await kit.trash()


async def test_a_ticket_expires_only_after_its_grace(kit: Kit) -> None:
    upload = await kit.open()
    await kit.advance(LIFE + GRACE - 100)
    assert (await kit.store.expire_upload(upload.id)).state is State.OPEN
    await kit.advance(101)
    assert (await kit.store.expire_upload(upload.id)).state is State.EXPIRED
    assert upload.object_name in await kit.trash()
    assert (await kit.commit(upload)).state is State.EXPIRED


async def test_stored_and_committed_uploads_do_not_expire(kit: Kit) -> None:
    first, second, other = await kit.named(1), await kit.named(2), await kit.open()
    await kit.commit(second)
    await kit.commit(other)
    await kit.advance(MAX_LIFE)
    assert (await kit.store.expire_upload(second.id)).state is State.STORED
    assert (await kit.store.expire_upload(other.id)).state is State.COMMITTED
    assert (await kit.store.expire_upload(first.id)).state is State.EXPIRED
    assert await kit.state(second) is State.COMMITTED


async def test_an_open_upload_is_due_after_the_first_look_and_then_after_longer_pauses(kit: Kit) -> None:
    upload = await kit.open()
    assert await kit.due() == []
    await kit.advance(FIRST_LOOK + 1)
    assert await kit.due() == [upload.id]
    await kit.store.postpone_upload(upload.id, 0)
    await kit.advance(2 * FIRST_LOOK - 100)
    assert await kit.due() == []
    await kit.advance(101)
    assert await kit.due() == [upload.id]
    await kit.store.postpone_upload(upload.id, 0)
    await kit.advance(2 * FIRST_LOOK + 2)
    assert await kit.due() == []


async def test_a_look_is_due_when_the_ticket_ends(kit: Kit) -> None:
    upload = await kit.open()
    await kit.advance(LIFE - 10)
    for _ in range(9):
        await kit.store.postpone_upload(upload.id, 0)
    assert await kit.due() == []
    await kit.advance(10 + GRACE + 1)
    assert await kit.due() == [upload.id]
    await kit.store.postpone_upload(upload.id, 0)
    await kit.advance(2)
    assert await kit.due() == [upload.id]


async def test_parts_that_arrived_since_the_last_look_extend_the_ticket(kit: Kit) -> None:
    upload = await kit.open()
    await kit.advance(LIFE - 10)
    await kit.store.postpone_upload(upload.id, 2)
    found = await kit.store.get_upload(upload.id)
    assert found is not None
    assert found[0].parts_seen == 2
    assert found[0].expires_at >= upload.expires_at + LIFE - 20
    await kit.advance(10)
    await kit.store.postpone_upload(upload.id, 1)
    again = await kit.store.get_upload(upload.id)
    assert again is not None
    assert (again[0].parts_seen, again[0].expires_at) == (2, found[0].expires_at)


async def test_a_stored_upload_is_never_due(kit: Kit) -> None:
    await kit.named(1)
    second = await kit.named(2)
    await kit.commit(second)
    await kit.advance(MAX_LIFE)
    assert second.id not in await kit.due()


async def test_a_committed_upload_is_kept_until_its_url_has_ended(kit: Kit) -> None:
    upload = await kit.open()
    await kit.commit(upload)
    await kit.advance(LIFE + GRACE - 100)
    assert await kit.due() == []
    assert await kit.state(upload) is State.COMMITTED
    await kit.advance(101)
    assert await kit.due() == []
    assert await kit.state(upload) is None
    assert len(await kit.sequences()) == 1


@pytest.mark.parametrize("object_is_there", [True, False])
async def test_an_aborted_upload_is_looked_at_once_more_after_its_grace(kit: Kit, object_is_there: bool) -> None:
    upload = await kit.open()
    await kit.store.abort_upload(upload.id)
    await kit.store.trash_done([upload.object_name])
    await kit.advance(LIFE + GRACE + 1)
    assert await kit.due() == [upload.id]
    await kit.store.settle_upload(upload.id, object_is_there=object_is_there)
    assert await kit.state(upload) is None
    assert (upload.object_name in await kit.trash()) == object_is_there


async def test_an_upload_that_has_not_ended_is_not_settled(kit: Kit) -> None:
    upload = await kit.open()
    await kit.store.settle_upload(upload.id, object_is_there=False)
    assert await kit.state(upload) is State.OPEN


async def test_an_ended_upload_whose_key_is_still_written_is_looked_at_later(kit: Kit) -> None:
    upload = await kit.open()
    await kit.store.abort_upload(upload.id)
    await kit.advance(LIFE + GRACE + 1)
    assert await kit.due() == [upload.id]
    await kit.store.postpone_upload(upload.id, 0)
    await kit.advance(2)
    assert await kit.due() == [upload.id]
    assert await kit.state(upload) is State.ABORTED


async def test_a_page_of_due_uploads_says_that_there_are_more(kit: Kit) -> None:
    ids = {(await kit.open()).id for _ in range(3)}
    await kit.advance(FIRST_LOOK + 1)
    page = await kit.store.uploads_due(1)
    assert page.more
    assert len(page.uploads) == 1
    assert ids == set(await kit.due())
