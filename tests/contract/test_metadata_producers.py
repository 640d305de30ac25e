"""Named producers, their seqnos and sessions: one contract, the fake and Tarantool."""

from __future__ import annotations

from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.upload import Receipt, State, UploadSpec
from tests.contract.metadata_kit import GRACE, MANY, MAX_LIFE, PRODUCER_LIFE, Kit, error_of, receipts_of


async def test_uploads_that_end_in_any_order_become_visible_in_seqno_order(kit: Kit) -> None:
    uploads = {seqno: await kit.named(seqno) for seqno in (7, 3, 5)}
    assert await kit.commit(uploads[7]) == Receipt(State.STORED, uploads[7].id, waits_for=uploads[3].id)
    again = await kit.commit(uploads[7])
    assert (again.state, again.duplicate) == (State.STORED, False)
    assert (await kit.commit(uploads[5])).waits_for == uploads[3].id
    assert await kit.sequences() == []

    await kit.commit(uploads[3])

    receipts = [await kit.commit(uploads[seqno]) for seqno in (3, 5, 7)]
    assert [receipt.sequence for receipt in receipts] == await kit.sequences()
    assert [receipt.offset for receipt in receipts] == [0, 1, 2]


@pytest.mark.parametrize("end", ["abort", "expire", "reject"])
async def test_whatever_ends_the_first_frees_those_behind_it(kit: Kit, end: str) -> None:
    first, second, third, open_one = [await kit.named(seqno) for seqno in (1, 2, 3, 4)]
    await kit.commit(third)
    await kit.commit(second)
    if end == "abort":
        await kit.store.abort_upload(first.id)
    elif end == "reject":
        await kit.commit(first, 99)
    else:
        await kit.advance(PRODUCER_LIFE + GRACE + 1)
        await kit.store.expire_upload(first.id)
    assert [await kit.state(upload) for upload in (second, third)] == [State.COMMITTED] * 2
    assert await kit.state(open_one) is State.OPEN
    assert len(await kit.sequences()) == 2


async def test_aborting_a_stored_upload_discards_its_payload(kit: Kit) -> None:
    first, second = await kit.named(1), await kit.named(2)
    await kit.commit(second)
    assert (await kit.store.abort_upload(second.id))[1].state is State.ABORTED
    assert second.object_name in await kit.trash()
    await kit.commit(first)
    assert len(await kit.sequences()) == 1


async def test_producers_do_not_wait_for_each_other(kit: Kit) -> None:
    await kit.named(1, "p")
    assert (await kit.commit(await kit.named(2, "q"))).state is State.COMMITTED
    assert (await kit.commit(await kit.open())).state is State.COMMITTED


async def test_a_stored_seqno_is_answered_with_its_sequence(kit: Kit) -> None:
    receipt = await kit.commit(await kit.named(4))
    (new,) = await kit.store.create_uploads(kit.subject, [UploadSpec(3, "text/plain", producer_id="p", seqno=4)])
    assert new.upload is None
    assert new.receipt == Receipt(State.COMMITTED, None, receipt.sequence, 0, 0, duplicate=True)


async def test_a_seqno_that_was_passed_over_is_refused(kit: Kit) -> None:
    await kit.commit(await kit.named(2))
    await kit.commit(await kit.named(9))
    with pytest.raises(MtsError) as caught:
        await kit.named(5)
    assert (caught.value.code, caught.value.details["last_seqno"]) == ("seqno_skipped", 9)


async def test_a_seqno_older_than_the_window_is_refused(kit: Kit) -> None:
    await kit.publish(*(kit.message(producer_id="p", seqno=2 * i) for i in range(1, 1003)))
    with pytest.raises(MtsError) as caught:
        await kit.named(2)
    assert caught.value.code == "seqno_too_old"
    assert caught.value.details == {"oldest": 5, "last_seqno": 2004}
    (new,) = await kit.store.create_uploads(kit.subject, [UploadSpec(4, "text/plain", producer_id="p", seqno=6)])
    assert new.receipt is not None
    assert new.receipt.duplicate


async def test_asking_again_for_an_open_seqno_gives_the_same_upload(kit: Kit) -> None:
    upload = await kit.named(1)
    await kit.advance(100)
    again = await kit.named(1)
    assert again.id == upload.id
    assert again.expires_at >= upload.expires_at + 100


async def test_asking_again_never_shortens_a_ticket_nor_passes_its_longest_life(kit: Kit) -> None:
    upload = await kit.named(1)
    longer = await kit.store.extend_upload(upload.id)
    assert (await kit.named(1)).expires_at == longer.expires_at
    await kit.advance(MAX_LIFE - 10)
    assert (await kit.named(1)).expires_at == upload.created_at + MAX_LIFE


@pytest.mark.parametrize(
    "other",
    [
        {"size": 4},
        {"sha256": "d" * 64},
        {"content_type": "text/html"},
        {"headers": {"kind": "other"}},
        {"headers": {}},
        {"headers": {"kind": "test", "more": ""}},
        {"sizes": [1]},
    ],
)
async def test_asking_again_with_another_announcement_is_a_conflict(kit: Kit, other: dict[str, Any]) -> None:
    announced: dict[str, Any] = {"headers": {"kind": "test"}}
    upload = await kit.named(1, **announced)
    assert (await kit.named(1, **announced)).id == upload.id
    with pytest.raises(MtsError) as caught:
        await kit.named(1, **announced | other)
    (field,) = other
    assert caught.value.code == "upload_conflict"
    assert caught.value.message.endswith(f"with other `{field}`")
    assert caught.value.details == {"upload_id": upload.id, "seqno": 1, "field": field}


async def test_asking_again_for_a_pack_compares_its_sizes(kit: Kit) -> None:
    upload = await kit.named(1, size=40, sizes=[1, 2, 3])
    assert (await kit.named(1, size=40, sizes=[1, 2, 3])).id == upload.id
    for sizes in ([1, 3, 2], [1, 2], [1, 2, 3, 0], None):
        with pytest.raises(MtsError) as caught:
            await kit.named(1, size=40, sizes=sizes)
        assert caught.value.details["field"] == "sizes"


async def test_asking_for_a_seqno_that_waits_gives_its_receipt(kit: Kit) -> None:
    first, second = await kit.named(1), await kit.named(2)
    await kit.commit(second)
    (new,) = await kit.store.create_uploads(kit.subject, [UploadSpec(3, "text/plain", producer_id="p", seqno=2)])
    assert new.receipt == Receipt(State.STORED, second.id, waits_for=first.id)


async def test_a_new_session_aborts_open_tickets_and_keeps_stored_ones(kit: Kit) -> None:
    first, second, third = [await kit.named(seqno) for seqno in (1, 2, 3)]
    await kit.commit(second)

    epoch, last_seqno = await kit.store.start_producer(kit.subject, "p")

    assert last_seqno == 2
    assert [await kit.state(upload) for upload in (first, second, third)] == [
        State.ABORTED,
        State.COMMITTED,
        State.ABORTED,
    ]
    found = await kit.store.get_upload(first.id)
    assert found is not None
    assert found[1].reason == "producer_fenced"
    assert first.object_name in await kit.trash()
    newer, last_seqno = await kit.store.start_producer(kit.subject, "p")
    assert (newer > epoch, last_seqno) == (True, 2)


async def test_a_session_says_whether_anything_is_stored_also_when_that_is_seqno_0(kit: Kit) -> None:
    assert (await kit.store.start_producer(kit.subject, "p"))[1] is None
    await kit.commit(await kit.named(0))
    assert (await kit.store.start_producer(kit.subject, "p"))[1] == 0


async def test_epochs_are_nobody_elses_and_rise_with_the_clock(kit: Kit) -> None:
    epochs = [(await kit.store.start_producer(kit.subject, producer))[0] for producer in ("p", "q", "p", "q")]
    assert epochs == sorted(set(epochs))
    await kit.advance(3600)
    later, _ = await kit.store.start_producer(kit.subject, "r")
    assert later > epochs[0] + 3_000_000


async def test_an_old_session_is_fenced_and_an_unknown_one_refused(kit: Kit) -> None:
    old, _ = await kit.store.start_producer(kit.subject, "p")
    new, _ = await kit.store.start_producer(kit.subject, "p")
    for epoch, code in ((old, "producer_fenced"), (new + 1, "bad_request")):
        with pytest.raises(MtsError) as caught:
            await kit.named(1, epoch=epoch)
        assert (caught.value.code, caught.value.details["epoch"]) == (code, new)
        (result,) = await kit.publish(kit.message(producer_id="p", seqno=1, epoch=epoch))
        assert error_of(result).code == code
    assert (await kit.commit(await kit.named(1, epoch=new))).state is State.COMMITTED


async def test_a_chain_too_long_for_one_transaction_is_resumed(kit: Kit) -> None:
    first = await kit.named(1)
    waiting = receipts_of(await kit.publish(*(kit.message(producer_id="p", seqno=i) for i in range(2, 1203))))
    assert {receipt.state for receipt in waiting} == {State.STORED}
    await kit.commit(first)
    assert len(await kit.sequences()) == 501

    (due,) = await kit.due()
    await kit.store.resume_upload(due)

    assert len(await kit.sequences()) == 1202
    assert await kit.due() == []


async def test_a_waiting_message_sent_again_gets_the_same_answer(kit: Kit) -> None:
    await kit.open(producer_id="p", seqno=1)
    first, again = [(await kit.publish(kit.message(producer_id="p", seqno=2)))[0].receipt for _ in range(2)]
    assert first is not None
    assert first.state is State.STORED
    assert again == first


@pytest.mark.parametrize("other", [{"group": "another"}, {"group": None}, {"codec": "zstd"}, {"codec": None}])
async def test_a_seqno_announced_with_another_group_or_codec_is_a_conflict(kit: Kit, other: dict[str, Any]) -> None:
    announced: dict[str, Any] = {"group": "g", "codec": "gzip"}
    first = await kit.named(1, **announced)
    assert (await kit.named(1, **announced)).id == first.id
    with pytest.raises(MtsError) as caught:
        await kit.named(1, **{**announced, **other})
    assert (caught.value.code, caught.value.details["field"]) == ("upload_conflict", *other)


async def test_a_sessions_headers_stand_beneath_those_of_messages_that_carry_its_epoch(kit: Kit) -> None:
    epoch, _ = await kit.store.start_producer(kit.subject, "p", {"a": "session", "b": "session"})
    await kit.commit(await kit.named(1, epoch=epoch, headers={"b": "own"}))
    await kit.publish(
        kit.message(producer_id="p", seqno=2, epoch=epoch),
        kit.message(producer_id="p", seqno=3, epoch=epoch, headers={"a": "own"}),
        kit.message(producer_id="p", seqno=4),
        kit.message(producer_id="q", seqno=1),
    )
    blocking = await kit.named(5, epoch=epoch)
    await kit.publish(kit.message(producer_id="p", seqno=6, epoch=epoch, headers={"c": "own"}))
    await kit.commit(blocking)
    page = await kit.store.get_messages(kit.subject, 1, MANY)
    session = {"a": "session", "b": "session"}
    assert [item.message.headers for extent in page.extents for item in messages_of(extent)] == [
        {"a": "session", "b": "own"},
        session,
        {"a": "own", "b": "session"},
        {},
        {},
        session,
        {**session, "c": "own"},
    ]


async def test_a_new_session_has_its_own_headers(kit: Kit) -> None:
    await kit.store.start_producer(kit.subject, "p", {"a": "first"})
    epoch, _ = await kit.store.start_producer(kit.subject, "p")
    await kit.publish(kit.message(producer_id="p", seqno=1, epoch=epoch))
    page = await kit.store.get_messages(kit.subject, 1, MANY)
    assert [extent.headers for extent in page.extents] == [{}]


async def test_an_upload_with_session_headers_asked_for_again_is_the_same(kit: Kit) -> None:
    epoch, _ = await kit.store.start_producer(kit.subject, "p", {"a": "session"})
    first = await kit.named(1, epoch=epoch, headers={"b": "own"})
    assert (await kit.named(1, epoch=epoch, headers={"b": "own"})).id == first.id
