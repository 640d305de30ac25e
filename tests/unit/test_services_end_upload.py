"""Complete and abort, on fakes."""

from __future__ import annotations

import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import State, Upload
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.upload_parts import sign_parts
from tests.core_kit import CoreKit, core_kit


def put_parts(kit: CoreKit, upload: Upload, sizes: dict[int, int]) -> None:
    assert upload.multipart_id is not None
    for number, size in sizes.items():
        kit.payloads.client_put_part(upload.object_name, upload.multipart_id, number, bytes(size))


async def code_of(kit: CoreKit, upload_id: str) -> tuple[str, object]:
    with pytest.raises(MtsError) as caught:
        await complete_upload(kit.core, upload_id)
    return caught.value.code, caught.value.details.get("missing")


async def test_complete_commits_what_the_event_did_not() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    assert await code_of(kit, upload.id) == ("upload_incomplete", None)
    kit.put(upload, b"ok")
    first = await complete_upload(kit.core, upload.id)
    again = await complete_upload(kit.core, upload.id)
    assert (first.state, first.sequence, first.duplicate) == (State.COMMITTED, 1, False)
    assert again == first


async def test_complete_after_the_event_gets_the_events_answer() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    receipt = await commit_created(kit.core, kit.put(upload, b"ok"))
    assert await complete_upload(kit.core, upload.id) == receipt


async def test_nobody_completes_an_upload_that_was_never_made() -> None:
    assert await code_of(core_kit(), new_id(1)) == ("not_found", None)


async def test_complete_makes_the_object_from_its_parts() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(25)).upload
    put_parts(kit, upload, {1: 10, 2: 10, 3: 5})
    assert (await complete_upload(kit.core, upload.id)).state is State.COMMITTED
    assert len(kit.payloads.objects[upload.object_name].body) == 25
    assert kit.payloads.multiparts == {}


async def test_missing_parts_and_parts_of_a_wrong_size_are_named() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(45)).upload
    put_parts(kit, upload, {1: 10, 3: 9, 5: 5})
    assert await code_of(kit, upload.id) == ("upload_incomplete", [2, 3, 4])
    put_parts(kit, upload, {2: 10, 3: 10, 4: 10})
    assert (await complete_upload(kit.core, upload.id)).state is State.COMMITTED


async def test_at_most_a_hundred_missing_parts_are_named() -> None:
    kit = core_kit(uploads__part_size=1)
    upload = (await kit.ticket(250)).upload
    assert await code_of(kit, upload.id) == ("upload_incomplete", list(range(1, 101)))


async def test_when_another_call_finished_the_multipart_the_key_tells() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(25)).upload
    put_parts(kit, upload, {1: 10, 2: 10, 3: 5})
    assert upload.multipart_id is not None
    parts = await kit.payloads.list_parts(upload.object_name, upload.multipart_id)
    assert parts is not None
    assert await kit.payloads.complete_multipart(upload.object_name, upload.multipart_id, parts)
    assert (await complete_upload(kit.core, upload.id)).state is State.COMMITTED


async def test_a_multipart_the_store_forgot_has_all_its_parts_missing_and_they_may_be_sent_again() -> None:
    kit = core_kit(uploads__part_size=10)
    upload = (await kit.ticket(15)).upload
    kit.payloads.multiparts.clear()
    assert await code_of(kit, upload.id) == ("upload_incomplete", [1, 2])
    renewed = (await sign_parts(kit.core, upload.id, [(1, None), (2, None)])).upload
    put_parts(kit, renewed, {1: 10, 2: 5})
    assert (await complete_upload(kit.core, upload.id)).state is State.COMMITTED
    assert kit.payloads.multiparts == {}


async def test_an_upload_that_vanished_meanwhile_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")

    async def unknown(_stored: object) -> None:
        return None

    monkeypatch.setattr(kit.core.committer, "commit", unknown)
    assert await code_of(kit, upload.id) == ("not_found", None)


async def test_an_abort_leaves_nothing() -> None:
    kit = core_kit(uploads__part_size=10)
    single, parts = (await kit.ticket(2)).upload, (await kit.ticket(25)).upload
    kit.put(single, b"ok")
    put_parts(kit, parts, {1: 10})
    for upload in (single, parts):
        for _ in range(2):
            assert (await abort_upload(kit.core, upload.id)).state is State.ABORTED
    assert (kit.payloads.objects, kit.payloads.multiparts, kit.metadata.trash) == ({}, {}, {})
    assert (await complete_upload(kit.core, parts.id)).state is State.ABORTED


async def test_an_abort_works_with_the_store_down_and_leaves_the_rest_to_the_reconciler() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.put(upload, b"ok")
    kit.payloads.down = True
    assert (await abort_upload(kit.core, upload.id)).state is State.ABORTED
    assert list(kit.metadata.trash) == [upload.object_name]


async def test_an_object_that_cannot_be_deleted_yet_stays_in_the_trash() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    kit.payloads.being_written.add(upload.object_name)
    await abort_upload(kit.core, upload.id)
    assert upload.object_name in kit.metadata.trash
    assert await kit.metadata.trash_due(10) == []


async def test_a_committed_message_cannot_be_aborted() -> None:
    kit = core_kit()
    upload = (await kit.ticket(2)).upload
    await commit_created(kit.core, kit.put(upload, b"ok"))
    with pytest.raises(MtsError) as caught:
        await abort_upload(kit.core, upload.id)
    assert caught.value.code == "upload_final"
    assert upload.object_name in kit.payloads.objects


async def test_aborting_a_waiting_message_of_a_pack_keeps_its_neighbours() -> None:
    kit = core_kit()
    await kit.ticket(1, producer_id="p", seqno=1)
    messages = [InlineMessage("orders", b"x", "a/b", producer_id="p", seqno=2), InlineMessage("orders", b"y", "a/b")]
    waiting, _ = await publish_batch(kit.core, messages)
    assert waiting.receipt is not None
    assert (await abort_upload(kit.core, waiting.receipt.upload_id or "")).state is State.ABORTED
    assert len(kit.payloads.objects) == 1
