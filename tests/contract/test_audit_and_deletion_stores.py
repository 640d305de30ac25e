"""Deletions and audits: one contract, two stores: the fakes that services are tested with, and Tarantool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from minitoolstream.adapters.memory.audit import MemoryAudit
from minitoolstream.adapters.memory.deletions import MemoryDeletions
from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.tarantool.audit import TarantoolAudit
from minitoolstream.adapters.tarantool.deletion import TarantoolDeletions
from minitoolstream.domain.compaction import RowMove
from minitoolstream.domain.deletion import Layout, lay_out
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent, messages_of
from minitoolstream.domain.pack import FRAME_PREFIX, InlineMessage, build_pack
from minitoolstream.domain.subject import new_id, pack_name
from minitoolstream.domain.upload import StoredObject, Upload, UploadSpec
from minitoolstream.ports import AuditStore, DeletionStore, MetadataStore, RewritePlan
from tests.clocked_tarantool import ClockedMetadata
from tests.contract import metadata_kit
from tests.contract.metadata_kit import MANY

SIZE = 4


@dataclass
class Kit:
    store: MetadataStore
    deletions: DeletionStore
    audit: AuditStore
    advance: Callable[[float], Awaitable[None]]
    subject: str

    async def plain(self, **more: str) -> tuple[int, Upload]:
        (new,) = await self.store.create_uploads(self.subject, [UploadSpec(SIZE, "text/plain", **more)])  # type: ignore[arg-type]
        assert new.upload is not None
        (receipt,) = await self.store.commit_uploads([StoredObject(new.upload.id, new.upload.object_name, SIZE)])
        assert receipt is not None
        assert receipt.sequence is not None
        return receipt.sequence, new.upload

    async def pack(self, count: int, *subjects: str) -> tuple[str, list[int]]:
        name = await self.target()
        messages = [
            InlineMessage(subject, b"x" * SIZE, "text/plain", {"n": str(n)})
            for subject in subjects or (self.subject,)
            for n in range(count)
        ]
        groups = build_pack(messages).groups
        answers = await self.store.commit_pack(name, groups)
        receipts = [result.receipt for group in answers for result in group]
        return name, [receipt.sequence or 0 for receipt in receipts if receipt]

    async def target(self) -> str:
        return pack_name(new_id(await self.store.now_ms()))

    async def sequences(self, subject: str | None = None) -> list[int]:
        page = await self.store.get_messages(subject or self.subject, 1, MANY)
        return [int(item.message.sequence) for extent in page.extents for item in messages_of(extent)]

    async def trash(self) -> set[str]:
        return {one.name for one in await self.store.trash_due(MANY)}

    async def switch(self, name: str, target: str, plan: RewritePlan) -> tuple[bool, Layout]:
        layout = lay_out(plan.kept, b"")
        return await self.deletions.switch(name, target, layout.moves, plan.missing), layout


@pytest.fixture
def kit(kit: metadata_kit.Kit, request: pytest.FixtureRequest) -> Kit:
    store = kit.store
    if isinstance(store, MemoryMetadata):
        return Kit(store, MemoryDeletions(store), MemoryAudit(store), kit.advance, kit.subject)
    assert isinstance(store, ClockedMetadata)
    settings = request.getfixturevalue("tarantool_settings")
    audit = TarantoolAudit(store.connection, settings)
    return Kit(store, TarantoolDeletions(store.connection, settings), audit, kit.advance, kit.subject)


async def test_a_plain_message_goes_and_its_payload_is_to_be_deleted(kit: Kit) -> None:
    sequence, upload = await kit.plain()
    deletion = await kit.deletions.delete_message(sequence, "api", "why")
    assert (deletion.kind, deletion.subject, deletion.who, deletion.reason) == ("message", kit.subject, "api", "why")
    assert (deletion.messages, deletion.bytes, deletion.sequences) == (1, SIZE, (sequence,))
    assert (deletion.removed, deletion.done) == (True, False)
    assert await kit.sequences() == []
    assert upload.object_name in await kit.trash()
    work = await kit.deletions.work(deletion.id, 10)
    assert (work.trash, work.rewrite) == ([upload.object_name], [])
    assert deletion.id in [one.id for one in await kit.deletions.open_deletions(MANY)]
    await kit.store.trash_done([upload.object_name])
    assert (await kit.deletions.work(deletion.id, 10)).deletion.done
    assert deletion.id not in [one.id for one in await kit.deletions.open_deletions(MANY)]


async def test_asked_again_the_same_is_answered_for_a_day(kit: Kit) -> None:
    sequence, upload = await kit.plain()
    first = await kit.deletions.delete_message(sequence, "api", "one")
    assert (await kit.deletions.delete_message(sequence, "other", "two")).id == first.id
    await kit.store.trash_done([upload.object_name])
    assert (await kit.deletions.work(first.id, 10)).deletion.done
    assert await kit.deletions.trim() == 0
    await kit.advance(24 * 3600 + 1)
    assert await kit.deletions.trim() >= 1
    with pytest.raises(MtsError) as gone:
        await kit.deletions.delete_message(sequence, "api", "")
    assert gone.value.code == "not_found"


@pytest.mark.parametrize("index", [0, 2, 4])
async def test_a_message_of_a_pack_is_cut_out_and_the_pack_written_anew(kit: Kit, index: int) -> None:
    name, sequences = await kit.pack(5)
    before = {row.sequence: row for n in sequences if (row := await kit.store.get_message(n))}
    deletion = await kit.deletions.delete_message(sequences[index], "api", "")
    left = [sequence for sequence in sequences if sequence != sequences[index]]
    assert await kit.sequences() == left
    assert (await kit.deletions.work(deletion.id, 10)).rewrite == [name]
    target = await kit.target()
    plan = await kit.deletions.plan(name, target)
    assert plan is not None
    assert sum(one.length for one in plan.kept) == 4 * (SIZE + FRAME_PREFIX)
    switched, layout = await kit.switch(name, target, plan)
    assert switched
    for at, sequence in enumerate(left):
        row = await kit.store.get_message(sequence)
        assert row is not None
        assert (row.object_name, row.byte_from) == (target, len(layout.head) + at * (SIZE + FRAME_PREFIX))
        assert (row.offset, row.size, row.headers, row.own) == (
            before[sequence].offset,
            SIZE,
            before[sequence].headers,
            before[sequence].own,
        )
    assert (await kit.deletions.work(deletion.id, 10)).trash == [name]
    await kit.store.trash_done([name])
    assert (await kit.deletions.work(deletion.id, 10)).deletion.done
    assert (await kit.audit.names([target]))[target].is_right
    assert await kit.deletions.plan(name, await kit.target()) is None


async def test_an_object_whose_messages_were_moved_is_told_from_others_in_the_trash(kit: Kit) -> None:
    (sequence, upload), (name, sequences) = await kit.plain(), await kit.pack(2)
    await kit.deletions.delete_message(sequence, "api", "")
    await kit.deletions.delete_message(sequences[0], "api", "")
    target = await kit.target()
    plan = await kit.deletions.plan(name, target)
    assert plan is not None
    assert (await kit.switch(name, target, plan))[0]
    await kit.advance(61)
    moved = {one.name: one.moved for one in await kit.store.trash_due(MANY)}
    assert (moved[upload.object_name], moved[name]) == (False, True)


async def test_what_became_visible_since_the_plan_stops_the_switch(kit: Kit) -> None:
    (new,) = await kit.store.create_uploads(kit.subject, [UploadSpec(SIZE, "text/plain", producer_id="till", seqno=1)])
    assert new.upload is not None
    later = InlineMessage(kit.subject, b"x" * SIZE, "text/plain", producer_id="till", seqno=2)
    erased = InlineMessage(f"{kit.subject}-erased", b"x" * SIZE, "text/plain")
    name = await kit.target()
    answers = await kit.store.commit_pack(name, build_pack([erased, later]).groups)
    (gone,) = [r.receipt.sequence for group in answers for r in group if r.receipt and r.receipt.sequence]
    await kit.deletions.delete_message(gone, "api", "")
    target = await kit.target()
    plan = await kit.deletions.plan(name, target)
    assert plan is not None
    await kit.store.commit_uploads([StoredObject(new.upload.id, new.upload.object_name, SIZE)])
    assert not (await kit.switch(name, target, plan))[0]
    last = await kit.store.get_message((await kit.sequences())[-1])
    assert last is not None
    assert last.object_name == name, "its payload is there still"


async def test_only_the_last_who_began_may_switch(kit: Kit) -> None:
    name, sequences = await kit.pack(3)
    await kit.deletions.delete_message(sequences[0], "api", "")
    first, second = await kit.target(), await kit.target()
    old, new = await kit.deletions.plan(name, first), await kit.deletions.plan(name, second)
    assert old is not None
    assert new is not None
    assert first in await kit.trash()
    assert not (await kit.switch(name, first, old))[0]
    assert (await kit.switch(name, second, new))[0]


async def test_a_plan_that_rows_have_left_behind_is_not_switched(kit: Kit) -> None:
    name, sequences = await kit.pack(4)
    await kit.deletions.delete_message(sequences[0], "api", "")
    target = await kit.target()
    plan = await kit.deletions.plan(name, target)
    assert plan is not None
    await kit.deletions.delete_message(sequences[2], "api", "")
    assert not (await kit.switch(name, target, plan))[0]
    assert target in await kit.trash()
    assert (await kit.store.get_message(sequences[1]) or plan) is not plan


async def test_a_pack_too_old_to_be_committed_is_not_switched_to(kit: Kit) -> None:
    name, sequences = await kit.pack(2)
    await kit.deletions.delete_message(sequences[0], "api", "")
    target = await kit.target()
    plan = await kit.deletions.plan(name, target)
    assert plan is not None
    await kit.advance(301)
    assert not (await kit.switch(name, target, plan))[0]


async def rows_of(kit: Kit) -> list[Extent]:
    return (await kit.store.get_messages(kit.subject, 1, MANY, whole=True)).extents


async def test_rows_move_into_a_pack_all_together(kit: Kit) -> None:
    first, second = await kit.plain(), await kit.plain()
    packed, _ = await kit.pack(3)
    before, target = await rows_of(kit), await kit.target()
    assert await kit.deletions.move_rows(target, [RowMove(row, 100 * at) for at, row in enumerate(before)])
    after = await rows_of(kit)
    assert [(row.object_name, row.byte_from, row.sha256) for row in after] == [(target, n, None) for n in (0, 100, 200)]
    assert [(row.sequence, row.offset, row.count, row.sizes) for row in after] == [
        (row.sequence, row.offset, row.count, row.sizes) for row in before
    ]
    await kit.advance(3700)  # their old objects outlive the URLs that were given out
    assert {first[1].object_name, second[1].object_name, packed} <= await kit.trash()
    assert target not in await kit.trash()


async def test_a_row_that_is_gone_keeps_all_others_where_they_are(kit: Kit) -> None:
    await kit.plain()
    sequence, _ = await kit.plain()
    before, target = await rows_of(kit), await kit.target()
    await kit.deletions.delete_message(sequence, "api", "")
    assert not await kit.deletions.move_rows(target, [RowMove(row, 0) for row in before])
    assert await rows_of(kit) == before[:1]
    assert target in await kit.trash()


async def test_a_pack_too_old_to_be_committed_takes_no_rows(kit: Kit) -> None:
    await kit.plain()
    target = await kit.target()
    await kit.advance(301)
    assert not await kit.deletions.move_rows(target, [RowMove(row, 0) for row in await rows_of(kit)])


async def test_all_of_a_subject_goes_some_rows_at_a_time(kit: Kit) -> None:
    for _ in range(3):
        await kit.plain()
    other = f"{kit.subject}-other"
    shared, _ = await kit.pack(2, kit.subject, other)
    deletion = await kit.deletions.purge_subject(kit.subject, "api", "left")
    assert (await kit.deletions.purge_subject(kit.subject, "api", "")).id == deletion.id
    later, _ = await kit.plain()
    work = await kit.deletions.work(deletion.id, MANY)
    assert (work.deletion.removed, work.deletion.messages, work.deletion.bytes) == (True, 5, 5 * SIZE)
    assert (len(work.trash), work.rewrite) == (3, [shared])
    assert await kit.sequences() == [later]
    assert len(await kit.sequences(other)) == 2
    with pytest.raises(MtsError) as unknown:
        await kit.deletions.purge_subject(f"{kit.subject}-none", "api", "")
    assert unknown.value.code == "unknown_subject"


async def test_pages_hold_everything_in_the_order_of_keys(kit: Kit) -> None:
    sequence, upload = await kit.plain()
    name, sequences = await kit.pack(3)
    (open_one,) = await kit.store.create_uploads(kit.subject, [UploadSpec(9, "text/plain")])
    assert open_one.upload is not None
    rows = {row.key: row for row in await kit.audit.rows(sequence - 1, MANY)}
    assert (rows[sequence].object_name, rows[sequence].first, rows[sequence].length) == (
        upload.object_name,
        None,
        SIZE,
    )
    assert (rows[sequences[-1]].count, rows[sequences[-1]].length) == (3, 3 * (SIZE + FRAME_PREFIX))
    assert len(await kit.audit.rows(sequence - 1, 1)) == 1
    found = await kit.audit.rows_at([sequence, sequences[-1], 10**9])
    assert {key: row.object_name for key, row in found.items()} == {sequence: upload.object_name, sequences[-1]: name}
    assert (name, 1) in await kit.audit.objects("", MANY)
    assert await kit.audit.objects(name, MANY) == [one for one in await kit.audit.objects("", MANY) if one[0] > name]
    uploads = {one.id: one for one in await kit.audit.uploads("", MANY)}
    assert (uploads[open_one.upload.id].state, uploads[open_one.upload.id].size) == ("open", 9)
    await kit.store.abort_upload(open_one.upload.id)
    assert open_one.upload.object_name in [one for one, _ in await kit.audit.trash("", MANY)]
    summary = await kit.audit.summary()
    assert summary.watermark >= sequences[-1]
    assert summary.trash >= 1


async def test_lanes_tell_rows_and_counters(kit: Kit) -> None:
    await kit.plain()
    await kit.pack(3)
    page = await kit.audit.lanes(f"{kit.subject[:-1]}", 10**6)
    lane = next(lane for lane in page.lanes if lane.subject == kit.subject)
    assert (lane.rows, lane.messages, lane.bytes, lane.is_right) == (2, 4, 4 * SIZE, True)
    assert (await kit.audit.mend_lane(kit.subject, 0)).is_right


async def test_what_points_at_an_object_is_told_and_orphans_are_discarded(kit: Kit) -> None:
    _, upload = await kit.plain()
    name, _ = await kit.pack(2)
    orphan = f"m/{kit.subject}/1/{new_id(1_600_000_000_000)}"
    young = await kit.target()
    found = await kit.audit.names([upload.object_name, name, orphan])
    assert (found[upload.object_name].rows, found[upload.object_name].upload) == (1, "committed")
    assert (found[name].rows, found[name].refs, found[name].is_right) == (1, 1, True)
    assert found[orphan].nothing
    assert await kit.audit.discard_orphans([upload.object_name, name, orphan, young]) == [orphan]
    assert orphan in await kit.trash()
    assert await kit.audit.mend_refs([upload.object_name, name]) == 0
    assert await kit.audit.keep([upload.object_name, name, orphan]) == [], "nothing needs what is in the trash"


async def test_rows_without_payload_are_marked_until_they_are_released(kit: Kit) -> None:
    name, sequences = await kit.pack(3)
    other, _ = await kit.plain()
    assert await kit.audit.quarantine([(sequences[0], "elsewhere", "missing")]) == 0
    assert await kit.audit.quarantine([(sequences[0], name, "missing")]) == 3
    assert await kit.audit.quarantine([(sequences[1], name, "missing")]) == 3, "it is the same row"
    page = await kit.store.get_messages(kit.subject, 1, MANY)
    assert [bool(extent.missing) for extent in page.extents] == [True, False]
    one, two = await kit.store.get_message(sequences[1]), await kit.store.get_message(other)
    assert one is not None
    assert two is not None
    assert (bool(one.missing), bool(two.missing)) == (True, False)
    assert (await kit.audit.rows_at([sequences[-1]]))[sequences[-1]].missing
    assert (await kit.audit.summary()).missing >= 1
    assert await kit.audit.release([sequences[-1]]) == 3
    one = await kit.store.get_message(sequences[1])
    assert one is not None
    assert not one.missing


async def test_a_pack_that_is_not_listed_is_missed_and_its_rows_kept_apart(kit: Kit) -> None:
    before, _ = await kit.pack(1)
    lost, _ = await kit.pack(2)
    held, _ = await kit.pack(1)
    before, lost, held = sorted((before, lost, held))
    missing = await kit.audit.missing_packs(before, [held])
    assert missing == [lost]
    assert await kit.audit.missing_packs(before, [lost, held]) == []
    assert await kit.audit.missing_packs(before, [lost]) == []
    assert await kit.audit.quarantine_object(lost, "missing") >= 1
    assert (await kit.audit.names([lost]))[lost].rows == 1
    page = await kit.store.get_messages(kit.subject, 1, MANY)
    assert [extent.object_name for extent in page.extents if extent.missing] == [lost]


async def test_the_latest_report_replaces_the_one_before(kit: Kit) -> None:
    await kit.audit.put_report("_mts/fsck/one", 1)
    await kit.audit.put_report("_mts/fsck/two", 2)
    assert await kit.audit.get_report() == ("_mts/fsck/two", 2)
    assert "_mts/fsck/one" in await kit.trash()
