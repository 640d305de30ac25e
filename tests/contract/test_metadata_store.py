"""One contract, two stores: the fake that services are tested with, and Tarantool through our adapter."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.consumer import Condition
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.pack import FRAME_PREFIX, InlineMessage, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import Receipt, State, StoredObject, Upload, UploadSpec
from minitoolstream.ports import MetadataStore, PackResult
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool

LIFE, PRODUCER_LIFE, FIRST_LOOK, GRACE, MAX_LIFE, PACK_GRACE = 3600, 900, 300, 600, 86400, 600
SETTINGS = {
    "MTS_UPLOADS_TICKET_LIFE": f"{LIFE}s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": f"{PRODUCER_LIFE}s",
    "MTS_UPLOADS_FIRST_LOOK": f"{FIRST_LOOK}s",
    "MTS_UPLOADS_PUT_GRACE": f"{GRACE}s",
    "MTS_UPLOADS_MAX_LIFE": f"{MAX_LIFE}s",
    "MTS_PACKS_GRACE": f"{PACK_GRACE}s",
}
MANY = 10_000
TRASH_GRACE = 3600  # where no host has said otherwise


@dataclass
class Kit:
    """A store, its clock, and a subject of the test's own."""

    store: MetadataStore
    advance: Callable[[float], Awaitable[None]]
    subject: str

    async def open(self, size: int = 3, *, subject: str | None = None, **more: Any) -> Upload:
        spec = UploadSpec(size, more.pop("content_type", "text/plain"), **more)
        (new,) = await self.store.create_uploads(subject or self.subject, [spec])
        assert new.upload is not None
        return new.upload

    async def named(self, seqno: int, producer_id: str = "p", **more: Any) -> Upload:
        return await self.open(producer_id=producer_id, seqno=seqno, **more)

    async def commit(self, upload: Upload, size: int | None = None) -> Receipt:
        stored = StoredObject(upload.id, upload.object_name, upload.size if size is None else size)
        (receipt,) = await self.store.commit_uploads([stored])
        assert receipt is not None
        return receipt

    async def state(self, upload: Upload) -> State | None:
        found = await self.store.get_upload(upload.id)
        return found[1].state if found else None

    async def trash(self) -> dict[str, bool]:
        return {one.name: one.multipart for one in await self.store.trash_due(MANY)}

    async def due(self) -> list[str]:
        """Ids of this test's uploads that are due; rows that have served go on the way."""
        found: list[Upload] = []
        while True:
            page = await self.store.uploads_due(MANY)
            found += page.uploads
            if not page.more:
                return [upload.id for upload in found if upload.subject == self.subject]

    async def sequences(self) -> list[int]:
        page = await self.store.get_messages(self.subject, 1, MANY)
        return [int(item.message.sequence) for extent in page.extents for item in messages_of(extent)]

    async def publish(self, *messages: InlineMessage, name: str | None = None) -> list[PackResult]:
        """Commit messages as one pack; results in the order of the messages."""
        pack = build_pack(messages)
        name = name or await self.pack_name()
        results: dict[int, PackResult] = {}
        answers = await self.store.commit_pack(name, pack.groups)
        for group, answered in zip(pack.groups, answers, strict=True):
            results.update(zip(group.indexes, answered, strict=True))
        return [results[index] for index in range(len(messages))]

    async def pack_name(self) -> str:
        return pack_name(new_id(await self.store.now_ms()))

    def message(self, data: bytes = b"data", **more: Any) -> InlineMessage:
        return InlineMessage(more.pop("subject", self.subject), data, more.pop("content_type", "text/plain"), **more)


@pytest.fixture(scope="module")
def tarantool_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("clocked")
    server = start_clocked_tarantool(folder)
    yield settings_for(server, folder, SETTINGS)
    server.stop()


@pytest.fixture(params=["memory", "tarantool"])
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[Kit]:
    subject = f"s-{uuid.uuid4().hex[:12]}"
    if request.param == "memory":
        memory = MemoryMetadata(load_settings({"MTS_HOME": "/nonexistent", **SETTINGS}))

        async def advance(seconds: float) -> None:
            memory.clock.advance(seconds)

        yield Kit(memory, advance, subject)
        return
    real = ClockedMetadata(request.getfixturevalue("tarantool_settings"))
    yield Kit(real, real.advance, subject)
    await real.close()


def receipts_of(results: Sequence[PackResult]) -> list[Receipt]:
    found = [result.receipt for result in results if result.receipt is not None]
    assert len(found) == len(results), results
    return found


def error_of(result: PackResult) -> MtsError:
    assert result.error is not None
    return result.error


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


async def test_a_ticket_is_extended_up_to_its_longest_life(kit: Kit) -> None:
    upload = await kit.named(1)
    assert (await kit.store.extend_upload(upload.id)).expires_at >= upload.created_at + LIFE
    await kit.advance(MAX_LIFE - 10)
    assert (await kit.store.extend_upload(upload.id)).expires_at == upload.created_at + MAX_LIFE


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


# -- named producers


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

    assert (epoch, last_seqno) == (1, 2)
    assert [await kit.state(upload) for upload in (first, second, third)] == [
        State.ABORTED,
        State.COMMITTED,
        State.ABORTED,
    ]
    found = await kit.store.get_upload(first.id)
    assert found is not None
    assert found[1].reason == "producer_fenced"
    assert first.object_name in await kit.trash()
    assert await kit.store.start_producer(kit.subject, "p") == (2, 2)


async def test_an_old_session_is_fenced_and_an_unknown_one_refused(kit: Kit) -> None:
    assert await kit.store.start_producer(kit.subject, "p") == (1, 0)
    await kit.store.start_producer(kit.subject, "p")
    for epoch, code in ((1, "producer_fenced"), (3, "bad_request")):
        with pytest.raises(MtsError) as caught:
            await kit.named(1, epoch=epoch)
        assert (caught.value.code, caught.value.details["epoch"]) == (code, 2)
        (result,) = await kit.publish(kit.message(producer_id="p", seqno=1, epoch=epoch))
        assert error_of(result).code == code
    assert (await kit.commit(await kit.named(1, epoch=2))).state is State.COMMITTED


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


# -- packs


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


# -- what a reader may ask for


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


async def test_a_waiting_message_sent_again_gets_the_same_answer(kit: Kit) -> None:
    await kit.open(producer_id="p", seqno=1)
    first, again = [(await kit.publish(kit.message(producer_id="p", seqno=2)))[0].receipt for _ in range(2)]
    assert first is not None
    assert first.state is State.STORED
    assert again == first


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
