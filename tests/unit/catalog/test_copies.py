"""The reconciler of copies, on SQLite and stores in memory."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.api import show_catalog
from minitoolstream.domain.catalog_tables import BY_PEER, CLAIMS, PLACEMENTS, QUEUE, STATS, Table
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pin import Wish
from minitoolstream.ports.catalog import Put
from minitoolstream.services import copy_content
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.claims import give_up_claim, take_claim
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.hold_content import Reference, hold_content, let_go
from minitoolstream.services.list_pins import PinFilter, list_pins
from minitoolstream.services.manage_pins import create_pin, delete_pin, get_pin, update_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.place_copies import SLICES, look_at, slice_of
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.watch_peers import MEMBERS
from tests.catalog_kit import ALICE, CatalogKit
from tests.catalog_steps import BODY, CID, DiedError, Dying, holders, placement, published, run, status


async def test_copies_are_made_where_they_shall_be(kit: CatalogKit) -> None:
    await published(kit)
    counts = await run(kit)
    row = await placement(kit)
    assert (counts.copied, counts.failed) == (2, 0)
    assert row["desired"] == row["actual"] == holders(kit)
    assert (row["in_progress"], row["failed"], row["drift_detected"]) == (frozenset(), frozenset(), False)
    assert await status(kit) == "pinned"
    for peer in row["actual"]:
        by_peer = await kit.store.get(BY_PEER, (peer, CID.prefix, CID.binary))
        assert by_peer is not None
        assert (by_peer["state"], by_peer["pin_size"]) == (2, len(BODY))
        counted = await kit.store.get(STATS, (f"peer/{peer}", "bytes"))
        assert counted is not None
        assert counted["value"] == len(BODY)
    assert (await run(kit)).looked_at <= 1
    assert (await run(kit)).looked_at == 0


async def test_a_content_whose_entries_are_on_two_pages_is_copied_and_counted_once(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.services.reconcile_copies._PAGE", 1)
    for _ in range(2):
        await published(kit)
        kit.advance(1)
    copy, get_many, reads, read = copy_content.copy_content, kit.store.get_many, [PLACEMENTS] * 2, asyncio.Event()

    async def copy_when_both_pages_are_read(*args: Any) -> int:
        await read.wait()
        return await copy(*args)

    async def get_and_tell(table: Table, keys: Any) -> Any:
        found = await get_many(table, keys)
        if table in reads:
            reads.remove(table)
            if not reads:
                read.set()
        return found

    monkeypatch.setattr("minitoolstream.services.settle_copies.copy_content", copy_when_both_pages_are_read)
    monkeypatch.setattr(kit.store, "get_many", get_and_tell)
    counts = await run(kit)
    assert (counts.copied, counts.by_peer) == (2, dict.fromkeys(holders(kit), len(BODY)))
    for _ in range(2):
        assert (await run(kit)).copied == 0
    assert await kit.store.page(QUEUE, (slice_of(CID),), 9) == []


async def test_a_pin_without_a_message_is_copied_from_a_peer_that_has_it(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    assert (await run(kit)).copied >= 2
    assert holders(kit) == {"eu", "us", "asia"}
    found = await get_pin(kit.core, ALICE, CID)
    assert (found.status, found.size) == ("pinned", len(BODY))
    # The version is its owner's: what the reconciler does, takes none from under a change that is being made.
    assert found.pin.version == 1


async def test_nobody_has_the_bytes(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    for _ in range(4):
        await run(kit, 60)
    assert await status(kit) == "failed"
    (peer,) = (await placement(kit))["failed"]
    assert (await placement(kit))["drift_detected"] is True
    row = await kit.store.get(BY_PEER, (peer, CID.prefix, CID.binary))
    assert row is not None
    assert row["error_message"] == "no store has its bytes"
    assert row["retry_count"] >= 3
    found = await get_pin(kit.core, ALICE, CID)
    assert found.failures == [row]
    (entry,) = await kit.store.page(QUEUE, (slice_of(CID),), 9)
    assert found.again_at is not None
    assert timedelta(0) <= found.again_at - entry["due"] <= timedelta(milliseconds=2)


async def test_a_pin_that_fails_says_why_until_it_is_there(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    failed = show_catalog.pin(await get_pin(kit.core, ALICE, CID))
    assert {one.peer_id: (one.reason, one.attempts) for one in failed.failures} == dict.fromkeys(
        failed.placement.failed, ("no store has its bytes", 1)
    )
    assert failed.again_at == show_catalog.moment(kit.now + timedelta(seconds=2))
    info = show_catalog.ipfs_status(await get_pin(kit.core, ALICE, CID)).info
    assert info == {"copies": "0 of 2"} | {f"failed at {one.peer_id}": one.reason for one in failed.failures}
    (listed,) = (await list_pins(kit.core, "alice", PinFilter(), 9)).pins
    assert show_catalog.pin(listed).failures == []
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await run(kit)
    there = show_catalog.pin(await get_pin(kit.core, ALICE, CID))
    assert (there.failures, there.again_at) == ([], None)


async def test_copies_that_never_were_are_not_counted_as_removed(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await delete_pin(kit.core, ALICE, CID)
    counts = await run(kit)
    assert (counts.removed, counts.ended) == (0, 1)


async def test_looks_at_what_fails_become_rarer(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    looks = [(await run(kit, 1)).looked_at for _ in range(40)]
    assert 3 <= sum(map(bool, looks)) <= 8


async def test_a_corrupt_source_is_passed_over_for_another(kit: CatalogKit) -> None:
    kit.kit.payloads.client_put("m/bad", b"other byte")
    await hold_content(kit.core, CID, Reference("bad", 2, frozenset(), "m/bad", None, len(BODY)))
    kit.peers.stores["asia"].client_put(key_of(CID), BODY)
    await run(kit)
    assert await status(kit) == "pinned"
    assert all(kit.peers.stores[peer].objects[key_of(CID)].body == BODY for peer in holders(kit))


async def test_a_corrupt_source_alone_is_a_failure_that_says_so(kit: CatalogKit) -> None:
    kit.kit.payloads.client_put("m/bad", b"other byte")
    await hold_content(kit.core, CID, Reference("bad", 1, frozenset(), "m/bad", None, len(BODY)))
    await run(kit)
    (peer,) = (await placement(kit))["failed"]
    row = await kit.store.get(BY_PEER, (peer, CID.prefix, CID.binary))
    assert row is not None
    assert "not those that its id names" in row["error_message"]
    assert holders(kit) == set()


async def test_a_large_content_goes_in_parts(kit: CatalogKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_content, "PART", 4)
    await published(kit, rf=1)
    await run(kit)
    (peer,) = holders(kit)
    assert kit.peers.stores[peer].objects[key_of(CID)].body == BODY
    assert not kit.peers.stores[peer].multiparts


@pytest.mark.parametrize(("part", "shown"), [(4, "pinning"), (len(BODY), "queued")])
async def test_ids_move_from_in_progress_to_actual_and_a_copy_in_parts_is_shown_as_under_way(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, part: int, shown: str
) -> None:
    monkeypatch.setattr(copy_content, "PART", part)
    copy, seen = copy_content.copy_content, []

    async def look_and_copy(*args: Any) -> int:
        seen.append(((await placement(kit))["in_progress"], await status(kit)))
        return await copy(*args)

    monkeypatch.setattr("minitoolstream.services.settle_copies.copy_content", look_and_copy)
    await published(kit)
    assert (await placement(kit))["in_progress"] == (await placement(kit))["desired"]
    await run(kit)
    assert len(holders(kit)) == 2
    assert seen == [(holders(kit), shown)] * 2
    row = await placement(kit)
    assert (row["in_progress"], row["actual"]) == (frozenset(), holders(kit))


async def test_ids_move_to_failed_and_are_in_progress_again_while_they_are_tried_again(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_content.copy_content
    seen: list[object] = []

    async def look_and_copy(*args: Any) -> int:
        row, told = await placement(kit), await get_pin(kit.core, ALICE, CID)
        why = [one["error_message"] for one in told.failures]
        seen.append((row["in_progress"], row["failed"], told.status, why, told.again_at))
        return await copy(*args)

    monkeypatch.setattr("minitoolstream.services.settle_copies.copy_content", look_and_copy)
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    wanted = (await placement(kit))["desired"]
    for _ in range(2):
        await run(kit, 60)
        row = await placement(kit)
        assert (row["in_progress"], row["failed"]) == (frozenset(), wanted)
    other = min(set(kit.peers.known) - wanted)
    kit.peers.stores[other].client_put(key_of(CID), BODY)
    await run(kit, 60)
    row = await placement(kit)
    assert (row["in_progress"], row["failed"], row["actual"]) == (frozenset(), frozenset(), wanted)
    reasons: list[list[str]] = [[], ["no store has its bytes"], ["no store has its bytes"]]
    assert seen == [(wanted, frozenset(), "pinning", why, None) for why in reasons]


@pytest.mark.parametrize("how", ["whoever wanted it died", "the other peer went"])
async def test_a_copy_that_is_there_and_wanted_again_is_not_in_progress_for_ever(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    kit.kit.payloads.client_put("m/x", BODY)
    copy, once = copy_content.copy_content, [Wish(rf=1)]

    async def lower_and_copy(*args: Any) -> int:
        if once:
            await update_pin(kit.core, ALICE, CID, once.pop())
        return await copy(*args)

    monkeypatch.setattr("minitoolstream.services.settle_copies.copy_content", lower_and_copy)
    await create_pin(kit.core, ALICE, CID, Wish(rf=2, source=f"0 {len(BODY)} m/x"))
    kit.advance(0.001)
    await reconcile_copies(kit.core)
    row = await placement(kit)
    assert (len(row["desired"]), len(row["actual"]), row["in_progress"]) == (1, 2, frozenset())
    if how == "the other peer went":
        (gone,) = row["desired"]
        del kit.peers.known[gone]
    else:
        kit.core.catalog = Dying(kit.store, 2)
        with pytest.raises(DiedError):
            await update_pin(kit.core, ALICE, CID, Wish(rf=2))
        kit.core.catalog = kit.store
    for _ in range(5):
        await run(kit, 5)
    row = await placement(kit)
    assert (row["desired"] - row["actual"], row["in_progress"]) == (frozenset(), frozenset())
    kit.advance(120)
    assert (await check_catalog(kit.core)).found == []


async def test_a_large_corrupt_content_leaves_nothing_behind(kit: CatalogKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_content, "PART", 4)
    kit.kit.payloads.client_put("m/bad", b"other byte")
    await hold_content(kit.core, CID, Reference("bad", 1, frozenset(), "m/bad", None, len(BODY)))
    await run(kit)
    assert holders(kit) == set()
    assert not any(store.multiparts for store in kit.peers.stores.values())


async def test_a_full_peer_gets_nothing_more_and_another_takes_its_place(kit: CatalogKit) -> None:
    await published(kit, rf=1)
    (chosen,) = (await placement(kit))["desired"]

    class Full(MemoryPayloads):
        async def put_new(self, *_given: Any, **_more: Any) -> None:
            raise unavailable("no space left", full=True)

    kit.peers.stores[chosen] = Full()
    await run(kit)
    await run(kit)
    assert await status(kit) == "pinned"
    assert len(holders(kit) - {chosen}) == 1
    assert (await placement(kit))["actual"] == holders(kit)


async def test_a_copy_that_waits_for_room_at_a_full_peer_is_made_when_there_is_some(kit: CatalogKit) -> None:
    """There is no other peer that could take it."""

    class Full(MemoryPayloads):
        async def put_new(self, *_given: Any, **_more: Any) -> None:
            raise unavailable("no space left", full=True)

    del kit.peers.known["asia"]
    room, kit.peers.stores["us"] = kit.peers.stores["us"], Full()
    await published(kit, rf=2)
    for _ in range(3):
        await run(kit)
    assert (holders(kit), (await run(kit)).looked_at) == ({"eu"}, 0)
    looks = [(await run(kit, 60)).looked_at for _ in range(24 * 60)]
    assert 24 <= sum(looks) <= 60
    kit.peers.stores["us"] = room
    for _ in range(2):
        await run(kit, 3700)
    assert holders(kit) == {"eu", "us"}
    assert (await run(kit, 7300)).looked_at == 0


async def test_a_peer_in_another_zone_gets_the_share_of_its_zone(kit: CatalogKit) -> None:
    bodies = [bytes([number]) * 5 for number in range(12)]
    for body in bodies:
        await published(kit, body, zones=frozenset({"eu", "us"}))
    await run(kit)
    assert all(holders(kit, body) == {"eu", "us"} for body in bodies)
    kit.peers.add("us", zone="mars")
    kit.peers.add("asia", zone="us")
    for _ in range(2):
        await run(kit)
    assert all(holders(kit, body) == {"eu", "asia"} for body in bodies)
    assert (await run(kit)).looked_at == 0


async def test_a_heavier_peer_gets_more_copies(kit: CatalogKit) -> None:
    bodies = [bytes([number]) * 5 for number in range(24)]
    for body in bodies:
        await published(kit, body, rf=1)
    await run(kit)
    before = sum("eu" in holders(kit, body) for body in bodies)
    kit.peers.add("eu", weight=1000.0)
    await run(kit)
    assert sum("eu" in holders(kit, body) for body in bodies) > max(before, 20)


@pytest.mark.parametrize("place", ['{"members": ["asia", "eu"], "walks": []}', None])
async def test_peers_as_another_version_wrote_them_are_gone_on_with(kit: CatalogKit, place: str | None) -> None:
    await published(kit)
    await run(kit)
    await run(kit)
    await kit.store.write([Put(CLAIMS, {"name": MEMBERS, "place": place})])
    assert (await run(kit)).looked_at == bool(place)
    assert (await run(kit)).looked_at == 0


async def test_what_was_never_there_is_not_counted_as_removed(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    await delete_pin(kit.core, ALICE, CID)
    counts = await run(kit)
    assert (counts.removed, counts.ended) == (0, 1)


@pytest.mark.parametrize("figures_fail", [True, False])
async def test_a_slice_that_fails_takes_nothing_from_the_others_and_is_the_one_that_is_told(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, figures_fail: bool
) -> None:
    bodies = [bytes([number]) * 5 for number in range(12)]
    for body in bodies:
        await published(kit, body)
    bad = slice_of(cid_of(bodies[0]))
    page, add = kit.store.page, kit.store.add

    async def page_of_others(table: Table, partition: Any, limit: int, **more: Any) -> Any:
        if table is QUEUE and partition == (bad,) and limit > 1:
            raise unavailable("this slice cannot be read")
        return await page(table, partition, limit, **more)

    async def no_figures(*_given: Any) -> None:
        raise unavailable("figures cannot be written")

    monkeypatch.setattr(kit.store, "page", page_of_others)
    if figures_fail:
        monkeypatch.setattr(kit.store, "add", no_figures)
    with pytest.raises(MtsError, match="this slice cannot be read"):
        await run(kit)
    monkeypatch.setattr(kit.store, "add", add)
    others = [body for body in bodies if slice_of(cid_of(body)) != bad]
    assert 0 < len(others) < len(bodies)
    assert all(len(holders(kit, body)) == 2 for body in others)
    copied = await kit.store.get(STATS, ("all", "copied"))
    assert (copied or {"value": 0})["value"] == (0 if figures_fail else 2 * len(others))


async def test_a_peer_that_is_removed_leaves_its_copies_to_others(kit: CatalogKit) -> None:
    bodies = [bytes([number]) * 5 for number in range(12)]
    for body in bodies:
        await published(kit, body, rf=2)
    await run(kit)
    affected = [body for body in bodies if "eu" in holders(kit, body)]
    del kit.peers.known["eu"]
    assert (await run(kit)).copied == len(affected)
    for body in bodies:
        assert (await placement(kit, body))["actual"] == {"us", "asia"}


async def test_a_peer_that_comes_gets_its_share_and_nothing_else_moves(kit: CatalogKit) -> None:
    bodies = [bytes([number]) * 5 for number in range(24)]
    for body in bodies:
        await published(kit, body, rf=1)
    await run(kit)
    before = {body: holders(kit, body) for body in bodies}
    kit.peers.add("africa")
    counts = await run(kit)
    moved = [body for body in bodies if holders(kit, body) != before[body]]
    assert 0 < len(moved) < len(bodies)
    assert all(holders(kit, body) == {"africa"} for body in moved)
    assert (counts.copied, counts.removed) == (len(moved), len(moved))


async def test_a_peer_that_is_lost_is_replaced_after_its_time_and_used_again_when_it_is_back(kit: CatalogKit) -> None:
    await published(kit, rf=2)
    await run(kit)
    (lost, _other) = sorted(holders(kit))
    (spare,) = {"eu", "us", "asia"} - holders(kit)
    kit.peers.stores[lost].down = True
    await run(kit)
    assert spare not in holders(kit)
    await run(kit, 1000)
    await run(kit)
    assert spare in (await placement(kit))["actual"]
    kit.peers.stores[lost].down = False
    for _ in range(3):
        await run(kit, 3600)
    assert (await placement(kit))["actual"] == (await placement(kit))["desired"] == holders(kit)
    assert lost in holders(kit)


async def test_what_nobody_holds_is_removed_everywhere(kit: CatalogKit) -> None:
    await published(kit)
    await run(kit)
    await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    counts = await run(kit)
    assert (counts.removed, counts.ended) == (2, 1)
    assert holders(kit) == set()
    assert await placement(kit) is None
    assert await find_pin(kit.core, CID) is None
    assert (await check_catalog(kit.core)).found == []


async def test_a_copy_at_a_peer_that_is_down_is_removed_when_it_is_back(kit: CatalogKit) -> None:
    await published(kit)
    await run(kit)
    down = sorted(holders(kit))[0]
    kit.peers.stores[down].down = True
    await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    await run(kit)
    assert holders(kit) == {down}
    assert down not in (await placement(kit))["actual"]
    kit.peers.stores[down].down = False
    await run(kit, 60)
    assert holders(kit) == set()
    assert await find_pin(kit.core, CID) is None
    counted = await kit.store.get(STATS, (f"peer/{down}", "bytes"))
    assert counted is not None
    assert counted["value"] == 0


async def test_many_reconcilers_at_once_do_the_work_once(kit: CatalogKit) -> None:
    for number in range(20):
        await published(kit, bytes([number]) * 5)
    kit.advance(5)
    runs = await asyncio.gather(*(reconcile_copies(kit.core) for _ in range(4)))
    assert sum(one.copied for one in runs) == 40


async def queued(kit: CatalogKit) -> int:
    return sum([len(await kit.store.page(QUEUE, (number,), 99)) for number in range(SLICES)])


async def test_an_entry_without_a_pin_is_dropped_a_minute_later_however_often_it_is_met(kit: CatalogKit) -> None:
    await kit.store.write([look_at(CID, kit.now)])
    for _ in range(5):
        await run(kit, 10)
        assert await queued(kit) == 1
    await run(kit, 10)
    assert await queued(kit) == 0


async def test_a_claim_is_one_holders_at_a_time_and_ends(kit: CatalogKit) -> None:
    taken = await asyncio.gather(*(take_claim(kit.core, "c", f"h{number}") for number in range(8)))
    assert taken.count(True) == 1
    holder = f"h{taken.index(True)}"
    assert await take_claim(kit.core, "c", holder)
    assert not await take_claim(kit.core, "c", "other")
    await give_up_claim(kit.core, "c", "other")
    assert not await take_claim(kit.core, "c", "other")
    kit.advance(61)
    assert await take_claim(kit.core, "c", "other")


@pytest.mark.parametrize("seed", range(12))
async def test_a_reconciler_killed_anywhere_leaves_what_the_next_one_ends(kit: CatalogKit, seed: int) -> None:
    chance = random.Random(seed)
    bodies = [bytes([number]) * 5 for number in range(6)]
    for body in bodies:
        await published(kit, body)
    if seed % 2:
        await run(kit)
        for body in bodies[::2]:
            await let_go(kit.core, cid_of(body), [f"m/{body.hex()[:20]}"])
        del kit.peers.known["us"]
    died = 0
    for least in (1, 6, 12):
        kit.core.catalog = Dying(kit.store, chance.randrange(least, least + 8))
        try:
            await run(kit, 120)
        except DiedError:
            died += 1
        kit.core.catalog = kit.store
    assert died >= 2  # the last may find little left to do
    for _ in range(3):
        await run(kit, 120)
    report = await check_catalog(kit.core, deep=True)
    assert report.found == []
    for body in bodies[seed % 2 :: 1 + seed % 2]:
        row = await placement(kit, body)
        assert row["actual"] == row["desired"] == holders(kit, body) & set(kit.peers.known)


async def test_a_pin_that_comes_back_while_it_is_removed_has_its_copies(kit: CatalogKit) -> None:
    await published(kit)
    await run(kit)
    await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    kit.advance(5)
    await asyncio.gather(reconcile_copies(kit.core), published(kit))
    for _ in range(2):
        await run(kit, 90)
    assert len(holders(kit)) == 2
    assert (await placement(kit))["actual"] == holders(kit)
    assert await status(kit) == "pinned"


async def test_a_deleted_pin_ends_in_the_reconciler(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    await delete_pin(kit.core, ALICE, CID)
    await run(kit)
    assert await find_pin(kit.core, CID) is None
