"""Queues that are not read from their beginning: what is met all the same, and what is remembered."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from minitoolstream.domain.catalog_tables import CLAIMS, QUEUE, REFS, REFS_BY_SUBJECT, TTL_QUEUE
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.pin import Wish
from minitoolstream.ports.catalog import Delete, Put
from minitoolstream.services.due_windows import LATE, Seen, looked_at, read_seen, so_far, windows
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.follow_subjects import hold_messages, note_subject
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.place_copies import look_at, slice_of
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, NOON, CatalogKit, cid
from tests.catalog_steps import DiedError
from tests.unit.catalog.test_follow import Stream

HOUR = timedelta(hours=1)
CID = cid(1)
SLICE = slice_of(CID)


async def seen_of(kit: CatalogKit, number: int) -> Seen:
    row = await kit.store.get(CLAIMS, (f"slice/{number}",))
    return read_seen(row["place"] if row else None)


async def queued(kit: CatalogKit) -> int:
    return len(await kit.store.page(QUEUE, (SLICE,), 99))


def test_windows_touch_each_other_and_are_short_where_much_was_taken_out_lately() -> None:
    found = windows(Seen(), NOON)
    assert found[0][1] == NOON - HOUR
    assert found[-1][1] == NOON
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    assert max(end - begin for begin, end in found[1:]) == timedelta(minutes=5)


def test_a_place_is_read_as_it_was_written() -> None:
    seen = Seen(NOON, NOON - HOUR)
    assert read_seen(str(seen)) == seen
    assert read_seen(None) == Seen()


def test_a_look_at_all_of_a_queue_goes_on_where_it_was_cut_off() -> None:
    cut_off = so_far(Seen(NOON - 9 * HOUR, NOON - 9 * HOUR), NOON - 5 * HOUR, NOON)
    assert windows(cut_off, NOON)[0] == (NOON - 5 * HOUR - LATE, NOON - HOUR)
    assert windows(looked_at(cut_off, NOON, NOON), NOON) == [(NOON - LATE, NOON)]


@pytest.mark.parametrize("ahead", [Seen(NOON + HOUR, NOON), Seen(NOON, NOON + HOUR), Seen(NOON + HOUR)])
def test_the_place_of_a_clock_that_was_ahead_hides_nothing(ahead: Seen) -> None:
    found = windows(ahead, NOON)
    assert (found[0][0].year, found[-1][1]) == (1970, NOON)


async def test_an_entry_that_comes_late_is_met_at_once_and_one_that_comes_very_late_some_time(
    kit: CatalogKit,
) -> None:
    await reconcile_copies(kit.core)
    start = kit.now
    kit.advance(600)
    await kit.store.write([look_at(CID, kit.now)])
    kit.advance(100)
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0
    seen = await seen_of(kit, SLICE)
    assert seen == Seen(kit.now, start)
    await kit.store.write([look_at(CID, kit.now - LATE + timedelta(seconds=1))])
    kit.advance(2)
    await reconcile_copies(kit.core)
    kit.advance(60)
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0
    await kit.store.write([look_at(CID, kit.now - timedelta(minutes=10))])
    await reconcile_copies(kit.core)
    assert await queued(kit) == 1
    kit.now = start + 2 * HOUR
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0


async def test_what_has_not_ended_is_met_again_however_old_its_entry_is(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pin changed while its copies were removed; it is due for minutes by then."""
    await reconcile_copies(kit.core)
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    (entry,) = await kit.store.page(QUEUE, (SLICE,), 9)
    kit.advance(600)

    async def settle(_content: Any) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr("minitoolstream.services.settle_copies.Content.settle", settle)
        await reconcile_copies(kit.core)
    seen = await seen_of(kit, SLICE)
    assert seen.upto == entry["due"]
    assert await queued(kit) == 1
    await reconcile_copies(kit.core)
    assert await kit.store.get(QUEUE, (SLICE, entry["due"], CID.binary)) is None


async def test_a_reconciler_that_fails_keeps_how_far_it_was_and_no_more(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reconcile_copies(kit.core)
    monkeypatch.setattr("minitoolstream.services.reconcile_copies._PAGE", 1)
    monkeypatch.setattr("minitoolstream.services.reconcile_copies._IN_A_SLICE", 1)
    cids = [one for one in map(cid, range(200)) if slice_of(one) == SLICE][:4]
    dues: list[datetime] = []
    for one in cids:
        kit.advance(1)
        dues.append(kit.now)
        await kit.store.write([look_at(one, kit.now)])
    kit.advance(100)
    settle = "minitoolstream.services.settle_copies.Content._forget_unless_new"
    left = {cids[2]}

    async def die_at_the_third(content: Any) -> None:
        if content.cid in left:
            raise DiedError
        await content.run.writing.write(content._done())

    with monkeypatch.context() as patch:
        patch.setattr(settle, die_at_the_third)
        with pytest.raises(DiedError):
            await reconcile_copies(kit.core)
    seen = await seen_of(kit, SLICE)
    assert seen.upto <= dues[2]
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0


@pytest.mark.parametrize("late", [timedelta(minutes=2), timedelta(minutes=30), timedelta(minutes=110)])
async def test_an_end_that_comes_late_is_met_when_all_of_the_queue_is_looked_at(
    kit: CatalogKit, late: timedelta
) -> None:
    kit.advance(3 * HOUR.total_seconds())
    await create_pin(kit.core, ALICE, CID, Wish(rf=1, expires_at=kit.now + timedelta(minutes=2)))
    (entry,) = (await kit.store.walk(TTL_QUEUE, None, 9))[0]
    key = tuple(entry[name] for name in TTL_QUEUE.key)
    await kit.store.write([Delete(TTL_QUEUE, key)])
    kit.advance(120 + late.total_seconds())
    assert await expire_pins(kit.core) == 0
    await kit.store.write([Put(TTL_QUEUE, entry)])
    ended = 0
    for _ in range(26):
        kit.advance(300)
        ended += await expire_pins(kit.core)
    assert ended == 1
    assert (await kit.store.walk(TTL_QUEUE, None, 9))[0] == []


async def test_digests_of_messages_that_went_meanwhile_leave_no_references(kit: CatalogKit) -> None:
    stream = Stream(kit)
    await note_subject(kit.core, "s", {"rf": 2})
    told = [stream.publish(bytes([number]) * 9, sha256=False) for number in range(3)]
    digests = {one.sequence: cid_of(bytes([number]) * 9).sha256 for number, one in enumerate(told)}
    see, looks = stream.get_message, iter([True, False, True, True])

    async def gone_at_the_second_look(sequence: int) -> Any:
        return await see(sequence) if next(looks, False) else None

    stream.get_message = gone_at_the_second_look  # type: ignore[method-assign]
    assert await hold_messages(kit.core, "s", digests) == 1
    rows = (await kit.store.walk(REFS_BY_SUBJECT, None, 9))[0]
    assert [row["sequence"] for row in rows] == [told[1].sequence]
    stream.gone = True
    assert await hold_messages(kit.core, "s", digests) == 0
    assert (await kit.store.walk(REFS_BY_SUBJECT, None, 9))[0] == []
    assert (await kit.store.walk(REFS, None, 9))[0] == []


async def test_a_clock_that_was_ahead_for_one_run_holds_nothing_up(kit: CatalogKit) -> None:
    await reconcile_copies(kit.core)
    kit.now += 5 * HOUR
    await reconcile_copies(kit.core)
    kit.now -= 5 * HOUR
    await kit.store.write([look_at(CID, kit.now)])
    kit.advance(60)
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0


async def test_an_old_entry_beside_a_new_one_of_the_same_content_ends(kit: CatalogKit) -> None:
    await reconcile_copies(kit.core)
    await kit.store.write([look_at(CID, kit.now + timedelta(seconds=1))])
    kit.advance(600)
    await kit.store.write([look_at(CID, kit.now)])
    await reconcile_copies(kit.core)
    (entry,) = await kit.store.page(QUEUE, (SLICE,), 9)
    assert (await seen_of(kit, SLICE)).upto == entry["due"]
    assert kit.now - entry["due"] < timedelta(seconds=1)
