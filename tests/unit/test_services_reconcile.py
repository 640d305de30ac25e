"""The reconciler, on fakes: what an event should have told, and what nobody will finish."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import State
from minitoolstream.services.delete_trash import delete_trash
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.reconcile_uploads import reconcile
from tests.core_kit import core_kit

LIFE, GRACE, PACK_GRACE = 3600, 900, 3600


async def test_a_payload_whose_notification_was_lost_is_committed() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")
    assert (await reconcile(kit.core)).counts()["looked"] == 0
    kit.advance(31)
    summary = await reconcile(kit.core)
    assert (summary.looked, summary.committed) == (1, 1)
    assert (await kit.receipt(upload)).state is State.COMMITTED
    assert kit.metrics.messages_committed == 1


async def test_a_payload_that_arrived_long_after_its_time_is_committed_whatever_the_time() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.advance(LIFE + GRACE + 1000)
    kit.put(upload, b"ok")
    assert (await reconcile(kit.core)).committed == 1


async def test_a_payload_that_never_came_expires_and_its_row_goes_later() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.advance(31)
    assert (await reconcile(kit.core)).postponed == 1
    kit.advance(LIFE + GRACE)
    assert (await reconcile(kit.core)).expired == 1
    assert (await kit.receipt(upload)).state is State.EXPIRED
    kit.advance(GRACE + 1)
    assert (await reconcile(kit.core)).removed == 1
    assert await kit.metadata.get_upload(upload.id) is None


async def test_a_put_that_still_runs_keeps_its_ticket_open() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.payloads.being_written.add(upload.object_name)
    kit.advance(LIFE + GRACE + 1)
    assert (await reconcile(kit.core)).postponed == 1
    kit.payloads.being_written.clear()
    kit.put(upload, b"ok")
    kit.advance(2)
    assert (await reconcile(kit.core)).committed == 1


async def test_a_put_that_still_runs_keeps_the_row_of_an_aborted_upload() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    await kit.metadata.abort_upload(upload.id)
    kit.payloads.being_written.add(upload.object_name)
    kit.advance(LIFE + GRACE + 1)
    await reconcile(kit.core)
    assert (await kit.receipt(upload)).state is State.ABORTED
    kit.payloads.being_written.clear()
    kit.put(upload, b"ok")
    kit.advance(61)
    await reconcile(kit.core)
    assert kit.payloads.objects == {}
    assert await kit.metadata.get_upload(upload.id) is None


async def test_arriving_parts_keep_a_ticket_open() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(25)).upload
    assert upload.multipart_id is not None
    kit.advance(LIFE + GRACE + 1)
    kit.payloads.client_put_part(upload.object_name, upload.multipart_id, 1, bytes(10))
    assert (await reconcile(kit.core)).postponed == 1
    kit.advance(LIFE)
    assert (await reconcile(kit.core)).postponed == 1
    kit.advance(LIFE + GRACE)
    assert (await reconcile(kit.core)).expired == 1
    assert kit.payloads.multiparts == {}


async def test_a_multipart_the_metadata_never_heard_of_is_aborted_with_its_upload() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(25)).upload
    await kit.payloads.create_multipart(upload.object_name, content_type="text/plain", metadata={})
    assert len(kit.payloads.multiparts) == 2
    kit.advance(LIFE + GRACE + 1)
    await reconcile(kit.core)
    assert kit.payloads.multiparts == {}


async def test_a_late_payload_of_an_aborted_upload_is_deleted() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    await kit.metadata.abort_upload(upload.id)
    await delete_trash(kit.core)
    kit.put(upload, b"ok")
    kit.advance(LIFE + GRACE + 1)
    summary = await reconcile(kit.core)
    assert (summary.removed, summary.objects_deleted) == (1, 1)
    assert kit.payloads.objects == {}


async def test_committed_rows_are_forgotten_and_their_messages_stay() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")
    kit.advance(31)
    await reconcile(kit.core)
    kit.advance(LIFE + GRACE)
    assert (await reconcile(kit.core)).removed == 1
    assert (await kit.metadata.status())["uploads"] == 0
    assert upload.object_name in kit.payloads.objects


async def test_a_walk_goes_on_until_nothing_is_due() -> None:
    kit = core_kit()
    uploads = [(await kit.ticket(2)).upload for _ in range(250)]
    for upload in uploads:
        kit.put(upload, b"ok")
    kit.advance(31)
    assert (await reconcile(kit.core)).committed == 250


async def test_a_chain_that_was_too_long_is_gone_on_with() -> None:
    kit = core_kit()
    first = (await kit.ticket(2, producer_id="p", seqno=1)).upload
    for seqno in range(2, 603):
        await publish_inline(kit.core, InlineMessage("orders", b"x", "a/b", producer_id="p", seqno=seqno))
    kit.put(first, b"ok")
    kit.advance(31)
    await reconcile(kit.core)
    await reconcile(kit.core)
    assert await kit.metadata.latest_sequence("orders") == 602


async def test_a_pack_nobody_committed_goes_after_its_grace() -> None:
    kit = core_kit()
    await publish_inline(kit.core, InlineMessage("orders", b"kept", "a/b"))
    lost = pack_name(new_id(await kit.metadata.now_ms()))
    kit.payloads.client_put(lost, b"lost")
    assert (await reconcile(kit.core)).packs_settled == 0
    kit.advance(PACK_GRACE + 1)
    summary = await reconcile(kit.core)
    assert (summary.packs_settled, summary.packs_discarded, summary.objects_deleted) == (2, 1, 1)
    assert lost not in kit.payloads.objects
    assert len(kit.payloads.objects) == 1
    assert (await reconcile(kit.core)).packs_settled == 0


async def test_foreign_objects_are_never_touched() -> None:
    kit = core_kit()
    foreign = ["_mts/packs/0", "_mts/packs/0/", "_mts/packs/00000000-abcd", "holiday.jpg", "m/orders/1/x"]
    for name in foreign:
        kit.payloads.client_put(name, b"mine")
    kit.advance(PACK_GRACE + 1)
    await reconcile(kit.core)
    assert sorted(kit.payloads.objects) == sorted(foreign)


async def test_what_the_store_does_not_confirm_is_tried_again_later() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")
    await kit.metadata.abort_upload(upload.id)
    kit.payloads.being_written.add(upload.object_name)
    assert (await reconcile(kit.core)).objects_deleted == 0
    kit.payloads.being_written.clear()
    assert (await reconcile(kit.core)).objects_deleted == 0
    kit.advance(61)
    assert (await reconcile(kit.core)).objects_deleted == 1


async def test_one_object_the_store_refuses_to_delete_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = core_kit()
    uploads = [(await kit.ticket(2)).upload for _ in range(5)]
    for upload in uploads:
        kit.put(upload, b"ok")
        await kit.metadata.abort_upload(upload.id)
    stubborn = uploads[3].object_name
    delete = kit.payloads.delete_many

    async def refusing(names: Sequence[str]) -> list[str]:
        if stubborn in names:
            raise MtsError("internal", "the store answered nonsense")
        return await delete(names)

    monkeypatch.setattr(kit.payloads, "delete_many", refusing)
    assert (await reconcile(kit.core)).objects_deleted == 4
    assert list(kit.payloads.objects) == list(kit.metadata.trash) == [stubborn]
    monkeypatch.undo()
    kit.advance(61)
    assert (await reconcile(kit.core)).objects_deleted == 1


async def test_the_trash_waits_while_the_store_is_down() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    await kit.metadata.abort_upload(upload.id)
    kit.payloads.down = True
    with pytest.raises(MtsError):
        await delete_trash(kit.core)
    kit.payloads.down = False
    assert await delete_trash(kit.core) == 1


async def test_old_idempotency_keys_are_forgotten() -> None:
    kit = core_kit()
    for number in range(3):
        await publish_inline(kit.core, InlineMessage("orders", b"x", "a/b", key=f"k{number}"))
    kit.advance(25 * 3600)
    assert (await reconcile(kit.core)).keys_forgotten == 3


async def test_a_store_that_is_down_ends_the_run() -> None:
    kit = core_kit()
    await kit.ticket(2)
    kit.advance(31)
    kit.payloads.down = True
    with pytest.raises(MtsError) as caught:
        await reconcile(kit.core)
    assert caught.value.retryable


async def test_one_upload_that_fails_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    bad, good = (await kit.ticket(2)).upload, (await kit.ticket(2)).upload
    kit.put(good, b"ok")
    find = kit.payloads.find

    async def failing(name: str) -> object:
        if name == bad.object_name:
            raise MtsError("internal", "the store answered nonsense")
        return await find(name)

    monkeypatch.setattr(kit.payloads, "find", failing)
    kit.advance(31)
    assert (await reconcile(kit.core)).committed == 1
    assert (await reconcile(kit.core)).looked == 0
    assert (await kit.receipt(bad)).state is State.OPEN


async def test_running_beside_an_event_changes_nothing() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")
    kit.advance(31)
    first = await reconcile(kit.core)
    second = await reconcile(kit.core)
    assert (first.committed, second.committed) == (1, 0)
    assert (await kit.metadata.status())["rows"] == 1


async def test_uploads_that_are_due_again_at_once_do_not_keep_the_rest_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred keys that are being written, each look taking longer than the pause until the next."""
    kit = core_kit()
    uploads = [(await kit.ticket(1)).upload for _ in range(120)]
    kit.advance(10_000)
    kit.payloads.being_written |= {upload.object_name for upload in uploads}
    looks = 0
    ask = kit.payloads.is_being_written

    async def slow(name: str) -> bool:
        nonlocal looks
        looks += 1
        kit.metadata.clock.advance(1)
        return await ask(name)

    monkeypatch.setattr(kit.payloads, "is_being_written", slow)
    summary = await reconcile(kit.core)
    assert (summary.looked, looks) == (120, 120)
