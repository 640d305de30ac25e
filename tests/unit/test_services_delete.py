"""Deletion, stopped at every single step: whoever comes next finishes it, and neighbours lose nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.pack import InlineMessage, read_frames
from minitoolstream.ports import DeletionStore, PayloadStore, StoredPart
from minitoolstream.services import rewrite_pack as rewriting
from minitoolstream.services.commit_uploads import commit_created
from minitoolstream.services.delete_messages import (
    delete_message,
    finish_deletions,
    list_deletions,
    purge_subject,
)
from minitoolstream.services.delete_trash import delete_trash
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.reconcile_uploads import reconcile
from tests.core_kit import CoreKit, core_kit
from tests.fuse import Fuse, KilledError


async def batch(kit: CoreKit, count: int, subject: str = "orders") -> dict[int, bytes]:
    payloads = [f"{subject} {n}".encode() for n in range(count)]
    results = await publish_batch(kit.core, [InlineMessage(subject, data, "text/plain") for data in payloads])
    receipts = [result.receipt for result in results]
    return {(receipt.sequence if receipt else 0) or 0: data for receipt, data in zip(receipts, payloads, strict=True)}


async def plain(kit: CoreKit, body: bytes, subject: str = "orders") -> int:
    ticket = await kit.ticket(len(body), subject)
    await commit_created(kit.core, kit.put(ticket.upload, body))
    return (await kit.receipt(ticket.upload)).sequence or 0


async def stored(kit: CoreKit, subject: str = "orders") -> dict[int, bytes]:
    """Every message with its payload, read as a reader would."""
    found: dict[int, bytes] = {}
    page = await kit.metadata.get_messages(subject, 1, 1000)
    for extent in page.extents:
        messages = [int(item.message.sequence) for item in messages_of(extent)]
        body = kit.payloads.objects[extent.object_name].body
        span = extent.byte_range
        payloads = [body] if span is None else list(read_frames(body[span[0] : span[1] + 1]))
        found.update(zip(messages, payloads, strict=True))
    return found


async def settle(kit: CoreKit) -> None:
    """What the schedule does, until nothing is left to do; packs that nobody committed need their time."""
    await finish_deletions(kit.core)
    kit.advance(2 * int(kit.core.settings["packs.grace"]))
    for _ in range(3):
        await reconcile(kit.core)
        kit.advance(120)


KEPT = ("_mts/deletions/", "_mts/journal/", "_mts/ceiling/")


def leftovers(kit: CoreKit) -> set[str]:
    """Objects that no row points at, other than the record."""
    pointed = {row.object_name for row in kit.metadata.order.rows}
    return {name for name in kit.payloads.objects if name not in pointed and not name.startswith(KEPT)}


async def scene(kit: CoreKit) -> tuple[int, dict[int, bytes]]:
    """A pack with a message to be deleted, and what must be left."""
    sent = await batch(kit, 4)
    gone = sorted(sent)[1]
    return gone, {sequence: data for sequence, data in sent.items() if sequence != gone}


async def test_a_pack_that_was_stored_anew_though_the_answer_was_lost_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = core_kit()
    gone, left = await scene(kit)
    put_new = kit.payloads.put_new

    async def sent_twice(name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        await put_new(name, body, content_type=content_type)
        await put_new(name, body, content_type=content_type)

    monkeypatch.setattr(kit.payloads, "put_new", sent_twice)
    assert (await delete_message(kit.core, gone, "api", "")).done
    assert await stored(kit) == left


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_step_of_a_rewrite_it_is_finished_by_the_reconciler(after: bool) -> None:
    step, survived = 0, False
    while not survived:
        step += 1
        kit = core_kit()
        gone, left = await scene(kit)
        fuse = Fuse(step, after=after)
        payloads, deletions = kit.core.payloads, kit.core.deletions
        kit.core.payloads = cast(PayloadStore, fuse.before(payloads))
        kit.core.deletions = cast(DeletionStore, fuse.before(deletions))
        try:
            await delete_message(kit.core, gone, "api", "")
            survived = True
        except KilledError:
            pass
        kit.core.payloads, kit.core.deletions = payloads, deletions
        assert left.items() <= (await stored(kit)).items(), f"step {step}: a neighbour is not readable right after"
        if step > 1 or after:
            assert await kit.metadata.get_message(gone) is None, f"step {step}: it is gone for readers"
        await settle(kit)
        if await kit.metadata.get_message(gone) is not None:  # nothing of it was durable
            assert (step, after) == (1, False)
            continue
        assert await stored(kit) == left, f"step {step}"
        assert leftovers(kit) == set(), f"step {step}"
        assert not kit.metadata.trash, f"step {step}"
        assert len([name for name in kit.payloads.objects if name.startswith("_mts/deletions/")]) == 1
    assert step > 8, "there were many steps"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_step_a_purge_is_finished_by_asking_again(after: bool) -> None:
    step, survived = 0, False
    while not survived:
        step += 1
        kit = core_kit()
        await plain(kit, b"large")
        messages = [InlineMessage(name, name.encode(), "text/plain") for name in ("orders", "others", "orders")]
        await publish_batch(kit.core, messages)
        theirs = await stored(kit, "others")
        fuse = Fuse(step, after=after)
        payloads, deletions = kit.core.payloads, kit.core.deletions
        kit.core.payloads = cast(PayloadStore, fuse.before(payloads))
        kit.core.deletions = cast(DeletionStore, fuse.before(deletions))
        try:
            await purge_subject(kit.core, "orders", "api", "")
            survived = True
        except KilledError:
            pass
        kit.core.payloads, kit.core.deletions = payloads, deletions
        assert (await purge_subject(kit.core, "orders", "api", "")).done
        assert await stored(kit, "orders") == {}
        assert await stored(kit, "others") == theirs
        await settle(kit)
        assert leftovers(kit) == set(), f"step {step}"
    assert step > 8


async def test_a_large_pack_is_rewritten_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_AT_ONCE", 64)
    monkeypatch.setattr(rewriting, "_IN_ONE_PUT", 128)
    kit = core_kit()
    sent = await batch(kit, 40)
    gone = sorted(sent)[20]
    assert (await delete_message(kit.core, gone, "api", "")).done
    del sent[gone]
    assert await stored(kit) == sent
    assert leftovers(kit) == set()
    assert kit.payloads.multiparts == {}


async def test_parts_that_somebody_aborted_take_no_message_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_AT_ONCE", 64)
    monkeypatch.setattr(rewriting, "_IN_ONE_PUT", 128)
    kit = core_kit()
    sent = await batch(kit, 40)
    gone = sorted(sent)[20]
    complete = kit.payloads.complete_multipart

    async def aborted(name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
        await kit.payloads.abort_multipart(name, multipart_id)
        return await complete(name, multipart_id, parts)

    with monkeypatch.context() as patched:
        patched.setattr(kit.payloads, "complete_multipart", aborted)
        with pytest.raises(MtsError, match="tried again"):
            await delete_message(kit.core, gone, "api", "")
        del sent[gone]
        assert await stored(kit) == sent
    await finish_deletions(kit.core)
    assert await stored(kit) == sent
    await settle(kit)
    assert leftovers(kit) == set()


async def test_killed_between_parts_nothing_of_them_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_AT_ONCE", 64)
    monkeypatch.setattr(rewriting, "_IN_ONE_PUT", 128)
    for step in range(4, 14):
        kit = core_kit()
        sent = await batch(kit, 40)
        gone = sorted(sent)[20]
        payloads = kit.core.payloads
        kit.core.payloads = cast(PayloadStore, Fuse(step, after=True).before(payloads))
        with pytest.raises(KilledError):
            await delete_message(kit.core, gone, "api", "")
        kit.core.payloads = payloads
        await finish_deletions(kit.core)
        await delete_trash(kit.core)
        del sent[gone]
        assert await stored(kit) == sent
        assert kit.payloads.multiparts == {}, f"step {step}"


async def test_neighbours_without_payload_do_not_keep_what_was_deleted() -> None:
    kit = core_kit()
    sent = await batch(kit, 4)
    sequences = sorted(sent)
    name = kit.metadata.order.rows[0].object_name
    stored_payload = kit.payloads.objects[name]
    stored_payload.body = stored_payload.body[:-3]  # the last one is cut short
    assert (await delete_message(kit.core, sequences[0], "api", "")).done
    assert name not in kit.payloads.objects
    rest = await kit.metadata.get_message(sequences[1])
    assert rest is not None
    assert rest.missing, "its extent cannot be read, and is known for it"


async def test_a_pack_that_was_written_anew_stays_until_the_journal_tells_where_its_messages_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = core_kit()
    gone, left = await scene(kit)
    old = kit.metadata.order.rows[0].object_name

    async def cannot(*_: object, **__: object) -> Any:
        raise MtsError("internal", "the journal cannot be written")

    with monkeypatch.context() as broken:
        broken.setattr(kit.journal, "read_journal", cannot)
        with pytest.raises(MtsError):
            await delete_message(kit.core, gone, "api", "")
        kit.advance(3600)
        with contextlib.suppress(MtsError):
            await reconcile(kit.core)
        assert old in kit.payloads.objects, "a rebuild would look for the neighbours there"
    kit.advance(3600)
    await reconcile(kit.core)
    assert old not in kit.payloads.objects
    assert await stored(kit) == left


async def test_a_store_that_is_down_leaves_it_to_be_finished() -> None:
    kit = core_kit()
    sequence = await plain(kit, b"payload")
    kit.payloads.down = True
    with pytest.raises(MtsError) as down:
        await delete_message(kit.core, sequence, "api", "")
    assert down.value.code == "unavailable"
    with pytest.raises(MtsError):
        await finish_deletions(kit.core)
    kit.payloads.down = False
    assert await finish_deletions(kit.core) == 1
    assert leftovers(kit) == set()
    assert (await delete_message(kit.core, sequence, "api", "")).done, "asked again, it is known"


async def test_an_object_that_the_store_does_not_let_go_is_said_to_be_there() -> None:
    kit = core_kit()
    sequence = await plain(kit, b"payload")
    name = kit.metadata.order.rows[0].object_name
    kit.payloads.being_written.add(name)
    with pytest.raises(MtsError) as not_gone:
        await delete_message(kit.core, sequence, "api", "")
    assert not_gone.value.code == "unavailable"
    kit.payloads.being_written.clear()
    kit.advance(120)
    assert (await delete_message(kit.core, sequence, "api", "")).done


async def test_the_reconciler_misses_a_pack_that_is_not_in_the_bucket() -> None:
    kit = core_kit()
    lost = await batch(kit, 3)
    kit.advance(1)
    kept = await batch(kit, 2)
    del kit.payloads.objects[kit.metadata.order.rows[0].object_name]
    kit.advance(2 * int(kit.core.settings["packs.grace"]))
    assert (await reconcile(kit.core)).quarantined == len(lost)
    assert kit.metrics.gauges["missing_payload_rows"] == 1
    rows = [await kit.metadata.get_message(sequence) for sequence in (min(lost), min(kept))]
    assert [bool(row and row.missing) for row in rows] == [True, False]
    assert (await reconcile(kit.core)).quarantined == 0


async def test_the_record_comes_page_by_page() -> None:
    kit = core_kit()
    sequences = [await plain(kit, b"x") for _ in range(3)]
    names = [row.object_name for row in kit.metadata.order.rows]
    for sequence in sequences:
        await delete_message(kit.core, sequence, "ann", f"reason {sequence}")
        kit.advance(1)
    first, following = await list_deletions(kit.core, "", 2)
    assert [record["reason"] for record in first] == [f"reason {sequence}" for sequence in sequences[:2]]
    assert following is not None
    rest, end = await list_deletions(kit.core, following, 2)
    assert ([record["who"] for record in rest], end) == (["ann"], None)
    what = msgspec.convert(rest[0]["what"], dict[str, object])
    assert what == {
        "kind": "message",
        "subject": "orders",
        "sequence": sequences[2],
        "upto": None,
        "sequences": [sequences[2]],
        "object_name": names[2],
    }
