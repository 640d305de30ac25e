"""Pins as their owners use them, on SQLite."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, cast

import pytest

from minitoolstream.api import parse_catalog
from minitoolstream.domain.catalog_tables import BY_PEER, EVENTS, OPERATIONS, PEERS, PINS, QUEUE, REFS, TTL_QUEUE
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import NOBODY, UNPINNING, Wish, ttl_bucket
from minitoolstream.ports.catalog import Change, Delete, Put
from minitoolstream.services import list_pins as pins_listed
from minitoolstream.services.catalog_figures import read_events
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.hold_content import Reference, hold_content, let_go
from minitoolstream.services.list_pins import PinFilter, list_by_time, list_pins
from minitoolstream.services.manage_pins import PinState, create_pin, delete_pin, get_pin, replace_pin, update_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.place_copies import SLICES, expires
from minitoolstream.services.run_batches import start_batch
from tests.catalog_kit import ALICE, BOB, NOON, OPERATOR, CatalogKit, cid
from tests.catalog_steps import DiedError, Dying


async def refused(work: Any, code: str) -> MtsError:
    with pytest.raises(MtsError) as caught:
        await work
    assert caught.value.code == code, caught.value
    return caught.value


def reference(name: str, rf: int = 1, zones: frozenset[str] = frozenset()) -> Reference:
    return Reference(name, rf, zones, f"m/{name}", None, 5)


async def test_a_new_pin_has_a_place_for_each_copy(kit: CatalogKit) -> None:
    made, created = await create_pin(kit.core, ALICE, cid(1), Wish(rf=2, name="one", tags=frozenset({"x"})))
    assert created
    assert (made.pin.rf, made.pin.name, made.pin.owner, made.pin.version) == (2, "one", "alice", 1)
    assert len(made.placement["desired"]) == 2
    for peer in made.placement["desired"]:
        assert await kit.store.get(BY_PEER, (peer, *made.pin.key)) is not None
    read = await get_pin(kit.core, ALICE, cid(1))
    assert (read.pin, read.placement["desired"]) == (made.pin, made.placement["desired"])


async def test_pinning_again_changes_the_pin(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(name="one"))
    again, created = await create_pin(kit.core, ALICE, cid(1), Wish(rf=3))
    assert (created, again.pin.name, again.pin.rf, again.pin.version) == (False, "one", 3, 2)


async def test_pinning_again_without_a_number_takes_no_copy_away(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(rf=2))
    again, _ = await create_pin(kit.core, ALICE, cid(1), Wish(name="one"))
    assert (again.pin.rf, len(again.placement["desired"])) == (2, 2)
    await refused(create_pin(kit.core, ALICE, cid(1), Wish(zones=frozenset({"mars"}))), "bad_request")
    await delete_pin(kit.core, ALICE, cid(1))
    anew, _ = await create_pin(kit.core, ALICE, cid(1), Wish())
    assert anew.pin.rf == 1


async def test_what_changes_a_pin_answers_with_what_a_look_at_it_tells(kit: CatalogKit) -> None:
    async def is_told(state: PinState) -> None:
        seen = await get_pin(kit.core, ALICE, cid(1))
        assert state.status == seen.status == "queued"
        for name in ("desired", "in_progress"):
            assert state.placement[name] == seen.placement[name] != frozenset()

    made, _ = await create_pin(kit.core, ALICE, cid(1), Wish(rf=1))
    await is_told(made)
    await is_told(await update_pin(kit.core, ALICE, cid(1), Wish(rf=3)))


async def test_what_an_owner_said_of_a_pin_goes_with_him(kit: CatalogKit) -> None:
    await hold_content(kit.core, cid(1), Reference("film", 1, frozenset(), "m/film", None, 4))
    said = Wish(name="mine", metadata={"a": "b"}, tags=frozenset({"t"}), priority=5)
    await create_pin(kit.core, ALICE, cid(1), said)
    await delete_pin(kit.core, ALICE, cid(1))
    left = await find_pin(kit.core, cid(1))
    assert left is not None
    assert (left.owner, left.name, left.own_metadata, left.tags, left.priority) == (NOBODY, None, {}, frozenset(), 0)
    anew, _ = await create_pin(kit.core, BOB, cid(1), Wish())
    assert (anew.pin.name, anew.pin.priority) == (None, 0)


async def test_a_repeated_operation_is_done_once(kit: CatalogKit) -> None:
    first, created = await create_pin(kit.core, ALICE, cid(1), Wish(rf=1), "op-1")
    again, created_again = await create_pin(kit.core, ALICE, cid(1), Wish(rf=1), "op-1")
    assert (again.pin, created_again) == (first.pin, created)
    await refused(create_pin(kit.core, ALICE, cid(1), Wish(rf=2), "op-1"), "idempotency_conflict")
    await delete_pin(kit.core, ALICE, cid(1), operation_id="op-2")
    await delete_pin(kit.core, ALICE, cid(1), operation_id="op-2")
    await refused(delete_pin(kit.core, ALICE, cid(1), operation_id="op-3"), "not_found")


async def test_a_repeated_operation_is_the_same_in_whatever_order_its_metadata_come(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(metadata={"a": "1", "b": "2"}), "op")
    again, created = await create_pin(kit.core, ALICE, cid(1), Wish(metadata={"b": "2", "a": "1"}), "op")
    assert (again.pin.version, created) == (1, True)
    await update_pin(kit.core, ALICE, cid(1), Wish(), operation_id="change")
    await refused(update_pin(kit.core, ALICE, cid(1), Wish(metadata={}), operation_id="change"), "idempotency_conflict")


@pytest.mark.parametrize("from_the_beginning", [True, False])
async def test_what_only_messages_hold_is_nobodys_to_unpin(kit: CatalogKit, from_the_beginning: bool) -> None:
    """Also when its owner has unpinned it a moment ago."""
    await hold_content(kit.core, cid(1), reference("one"))

    class Meanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(kit.store, name)

        async def put_if(self, *given: Any) -> Any:
            kit.core.catalog = kit.store
            await delete_pin(kit.core, ALICE, cid(1))
            return await kit.store.put_if(*given)

    if not from_the_beginning:
        await create_pin(kit.core, ALICE, cid(1), Wish())
        kit.core.catalog = cast(Any, Meanwhile())
    error = await refused(delete_pin(kit.core, OPERATOR, cid(1)), "not_found")
    assert "only messages hold" in error.message
    assert [one.pin.cid for one in (await list_pins(kit.core, NOBODY, PinFilter(), 10)).pins] == [cid(1)]


async def test_what_an_owner_unpins_and_messages_still_hold_is_in_their_list(kit: CatalogKit) -> None:
    await hold_content(kit.core, cid(1), reference("one"))
    await create_pin(kit.core, ALICE, cid(1), Wish())
    kit.advance(1)
    await delete_pin(kit.core, ALICE, cid(1))
    assert (await list_pins(kit.core, "alice", PinFilter(), 10)).pins == []
    assert [one.pin.cid for one in (await list_pins(kit.core, NOBODY, PinFilter(), 10)).pins] == [cid(1)]


async def test_a_replacement_that_is_refused_leaves_no_new_pin(kit: CatalogKit) -> None:
    await hold_content(kit.core, cid(1), reference("one"))
    await refused(replace_pin(kit.core, OPERATOR, cid(1), cid(2), Wish()), "not_found")
    assert await find_pin(kit.core, cid(2)) is None
    await create_pin(kit.core, ALICE, cid(3), Wish())
    await replace_pin(kit.core, ALICE, cid(3), cid(2), Wish())
    assert [one.pin.cid for one in (await list_pins(kit.core, "alice", PinFilter(), 10)).pins] == [cid(2)]


@pytest.mark.parametrize(
    ("before", "again"),
    [
        (Wish(rf=1, zones=frozenset({"eu"})), Wish(rf=3)),
        (Wish(rf=2), Wish(zones=frozenset({"eu"}))),
    ],
)
async def test_pinned_again_what_is_named_must_fit_what_is_kept(kit: CatalogKit, before: Wish, again: Wish) -> None:
    made, _ = await create_pin(kit.core, ALICE, cid(1), before)
    await refused(create_pin(kit.core, ALICE, cid(1), again, "op"), "bad_request")
    await refused(update_pin(kit.core, ALICE, cid(1), again), "bad_request")
    assert (await get_pin(kit.core, ALICE, cid(1))).pin == made.pin
    wider, _ = await create_pin(kit.core, ALICE, cid(1), Wish(rf=3, zones=frozenset()))
    assert (wider.pin.rf, wider.pin.zones) == (3, frozenset())


async def test_a_repeated_operation_is_answered_although_it_would_be_refused_by_now(kit: CatalogKit) -> None:
    wish = Wish(rf=3, expires_at=NOON + timedelta(hours=1))
    batch = await start_batch(kit.core, ALICE, "pin", [cid(2)], Wish(rf=3), operation_id="batch")
    await create_pin(kit.core, ALICE, cid(1), wish, "create")
    await update_pin(kit.core, ALICE, cid(1), wish, version=1, operation_id="update")
    kit.advance(7200)
    await kit.store.write([Put(PEERS, {"peer_id": "us", "state": "lost"})])
    again, created = await create_pin(kit.core, ALICE, cid(1), wish, "create")
    assert (again.pin.version, created) == (2, True)
    updated = await update_pin(kit.core, ALICE, cid(1), wish, version=1, operation_id="update")
    assert updated.pin.version == 2
    assert await start_batch(kit.core, ALICE, "pin", [cid(2)], Wish(rf=3), operation_id="batch") == batch
    await refused(create_pin(kit.core, ALICE, cid(1), wish, "another"), "bad_request")


async def test_an_operation_that_is_refused_is_not_remembered(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish())
    eu, core = Wish(rf=2, zones=frozenset({"eu"})), kit.core
    for work, code in (
        (create_pin(core, ALICE, cid(2), Wish(rf=9), "a"), "bad_request"),
        (create_pin(core, ALICE, cid(1), eu, "b"), "bad_request"),
        (create_pin(core, BOB, cid(1), Wish(), "c"), "forbidden"),
        (update_pin(core, ALICE, cid(2), Wish(), operation_id="d"), "not_found"),
        (update_pin(core, ALICE, cid(1), Wish(), version=7, operation_id="e"), "version_conflict"),
        (update_pin(core, ALICE, cid(1), eu, operation_id="f"), "bad_request"),
        (delete_pin(core, ALICE, cid(2), operation_id="g"), "not_found"),
        (delete_pin(core, ALICE, cid(1), 7, "h"), "version_conflict"),
        (start_batch(core, ALICE, "pin", [cid(3)], Wish(rf=9), operation_id="i"), "bad_request"),
    ):
        await refused(work, code)
    assert await kit.store.walk(OPERATIONS, None, 10) == ([], None)


async def test_a_stale_version_is_told_the_current_one(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish())
    await update_pin(kit.core, ALICE, cid(1), Wish(name="two"), version=1)
    error = await refused(update_pin(kit.core, ALICE, cid(1), Wish(name="three"), version=1), "version_conflict")
    assert error.details == {"version": 2}
    await refused(update_pin(kit.core, ALICE, cid(1), Wish(), version=9), "version_conflict")
    await refused(delete_pin(kit.core, ALICE, cid(1), version=1), "version_conflict")


async def test_of_many_that_change_one_version_one_wins(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish())
    changes = [update_pin(kit.core, ALICE, cid(1), Wish(name=str(number)), version=1) for number in range(8)]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert sum(not isinstance(outcome, MtsError) for outcome in outcomes) == 1


async def test_another_owner_has_no_access(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish())
    for work in (
        get_pin(kit.core, BOB, cid(1)),
        update_pin(kit.core, BOB, cid(1), Wish(name="mine")),
        delete_pin(kit.core, BOB, cid(1)),
        create_pin(kit.core, BOB, cid(1), Wish()),
    ):
        await refused(work, "forbidden")
    assert (await get_pin(kit.core, OPERATOR, cid(1))).pin.owner == "alice"


@pytest.mark.parametrize(
    "wish",
    [
        Wish(rf=0),
        Wish(rf=4),
        Wish(rf=17),
        Wish(rf=2, zones=frozenset({"eu"})),
        Wish(zones=frozenset({"nowhere"})),
        Wish(name="n" * 256),
        Wish(tags=frozenset({"t" * 129})),
        Wish(tags=frozenset(map(str, range(65)))),
        Wish(metadata={"k": "v" * 2049}),
        Wish(metadata={"mts.rf": "9"}),
        Wish(priority=128),
        Wish(expires_at=NOON),
        Wish(expires_at=NOON + timedelta(seconds=59)),
    ],
)
async def test_a_wrong_wish_is_refused_and_nothing_is_written(kit: CatalogKit, wish: Wish) -> None:
    await refused(create_pin(kit.core, ALICE, cid(1), wish), "bad_request")
    assert await find_pin(kit.core, cid(1)) is None
    assert (await kit.store.walk(QUEUE, None, 10))[0] == []


async def test_a_catalog_without_peers_says_which_setting_is_missing(kit: CatalogKit) -> None:
    kit.peers.known.clear()
    error = await refused(create_pin(kit.core, ALICE, cid(1), Wish()), "bad_request")
    assert "MTS_CATALOG_PEERS names none" in error.message


async def test_an_ended_pin_is_not_seen_and_can_be_pinned_anew(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(name="one"))
    await delete_pin(kit.core, ALICE, cid(1))
    await refused(get_pin(kit.core, ALICE, cid(1)), "not_found")
    assert (await list_pins(kit.core, "alice", PinFilter(), 10)).pins == []
    kit.advance(1)
    again, created = await create_pin(kit.core, BOB, cid(1), Wish())
    assert created
    assert (again.pin.owner, again.pin.name, again.pin.version) == ("bob", None, 3)


async def test_lists_are_the_newest_first_and_paged(kit: CatalogKit) -> None:
    for number in range(25):
        await create_pin(kit.core, ALICE, cid(number), Wish(name=f"n-{number}", tags=frozenset({str(number % 2)})))
        kit.advance(7200)
    names: list[str | None] = []
    cursor = None
    while True:
        page = await list_pins(kit.core, "alice", PinFilter(tag="1"), 5, cursor)
        assert len(page.pins) <= 5
        names += [one.pin.name for one in page.pins]
        cursor = page.next
        if cursor is None:
            break
    assert names == [f"n-{number}" for number in range(23, 0, -2)]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (PinFilter(name="b"), ["b"]),
        (PinFilter(name="B", match="iexact"), ["b"]),
        (PinFilter(name="a", match="partial"), ["ab", "a"]),
        (PinFilter(name="A", match="ipartial"), ["ab", "a"]),
        (PinFilter(before=NOON + timedelta(hours=1)), ["a"]),
        (PinFilter(after=NOON), ["ab", "b"]),
        (PinFilter(statuses=frozenset({"pinned"})), []),
        (PinFilter(metadata={"k": "b"}), ["b"]),
        (PinFilter(cids=frozenset({cid(0), cid(9)})), ["a"]),
    ],
)
async def test_lists_are_filtered(kit: CatalogKit, wanted: PinFilter, names: list[str]) -> None:
    for number, name in enumerate(("a", "b", "ab")):
        await create_pin(kit.core, ALICE, cid(number), Wish(name=name, metadata={"k": name}))
        kit.advance(3600)
    await create_pin(kit.core, BOB, cid(7), Wish(name="a"))
    assert [one.pin.name for one in (await list_pins(kit.core, "alice", wanted, 10)).pins] == names


@pytest.mark.parametrize("together", [1, 3, 7])
async def test_a_list_by_time_loses_no_pin_of_the_same_moment(kit: CatalogKit, together: int) -> None:
    """Clients of the IPFS API go on with the time of the last pin that they saw."""
    for number in range(14):
        await create_pin(kit.core, ALICE, cid(number), Wish())
        kit.advance(1 if number % together == together - 1 else 0)
    seen: list[str] = []
    wanted = PinFilter()
    while True:
        page = await list_by_time(kit.core, "alice", wanted, 5)
        seen += [one.pin.cid.text for one in page.pins]
        if not page.next:
            break
        wanted = PinFilter(before=page.pins[-1].pin.created_at)
    assert sorted(seen) == sorted(cid(number).text for number in range(14))


async def test_a_list_by_time_goes_on_until_it_finds_something(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins_listed, "LOOKED_AT", 4)
    for number in range(12):
        await create_pin(kit.core, ALICE, cid(number), Wish(name=str(number)))
        kit.advance(1)
    assert (await list_pins(kit.core, "alice", PinFilter(name="0"), 5)).pins == []
    found = await list_by_time(kit.core, "alice", PinFilter(name="0"), 5)
    assert [one.pin.name for one in found.pins] == ["0"]


async def test_the_same_bytes_published_twice_are_one_entry_with_two_references(kit: CatalogKit) -> None:
    for name in ("one", "two", "two"):
        await hold_content(kit.core, cid(1), reference(name, rf=2))
    found = await find_pin(kit.core, cid(1))
    assert found is not None
    assert (found.owner, found.rf, found.size) == (NOBODY, 2, 5)
    assert len(await kit.store.page(REFS, (cid(1).binary,), 10)) == 2


async def test_copies_stay_while_another_holds_the_content(kit: CatalogKit) -> None:
    await hold_content(kit.core, cid(1), reference("one", rf=3))
    await create_pin(kit.core, ALICE, cid(1), Wish(rf=1))
    assert not await let_go(kit.core, cid(1), ["one"])
    kept = await get_pin(kit.core, ALICE, cid(1))
    assert kept.pin.rf == 1
    await hold_content(kit.core, cid(1), reference("two"))
    await delete_pin(kit.core, ALICE, cid(1))
    found = await find_pin(kit.core, cid(1))
    assert found is not None
    assert (found.owner, found.ended) == (NOBODY, False)
    assert await let_go(kit.core, cid(1), ["two"])
    ended = await find_pin(kit.core, cid(1))
    assert ended is not None
    assert ended.status == UNPINNING


async def test_zones_are_those_of_all_who_hold_it(kit: CatalogKit) -> None:
    await hold_content(kit.core, cid(1), reference("one", zones=frozenset({"eu"})))
    await hold_content(kit.core, cid(1), reference("two", zones=frozenset({"us"})))
    found = await find_pin(kit.core, cid(1))
    assert found is not None
    assert found.zones == {"eu", "us"}
    await hold_content(kit.core, cid(1), reference("three"))
    anywhere = await find_pin(kit.core, cid(1))
    assert anywhere is not None
    assert anywhere.zones == frozenset()


async def test_a_pin_expires_at_its_time_and_once(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(expires_at=NOON + timedelta(hours=5, minutes=30)))
    kit.advance(5 * 3600)
    assert await expire_pins(kit.core) == 0
    kit.advance(3600)
    assert await expire_pins(kit.core) == 1
    assert await expire_pins(kit.core) == 0
    events = await kit.store.page(EVENTS, (cid(1).binary,), 10)
    assert [row["event"] for row in events] == ["pinned", "expired"]


async def test_a_time_that_was_changed_later_does_not_expire_early(kit: CatalogKit) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(expires_at=NOON + timedelta(hours=1)))
    await update_pin(kit.core, ALICE, cid(1), Wish(expires_at=NOON + timedelta(days=60)))
    await create_pin(kit.core, ALICE, cid(2), Wish(expires_at=NOON + timedelta(hours=1)))
    await update_pin(kit.core, ALICE, cid(2), Wish(keep=True))
    kit.advance(2 * 3600)
    assert await expire_pins(kit.core) == 0
    kit.advance(60 * 86400)
    assert await expire_pins(kit.core) == 1
    assert (await get_pin(kit.core, ALICE, cid(2))).pin.expires_at is None


async def test_a_pin_whose_end_nobody_waits_for_is_found_and_ends(kit: CatalogKit) -> None:
    """Its entry in the queue is gone, and so is its hour."""
    ends = NOON + timedelta(minutes=5)
    await create_pin(kit.core, ALICE, cid(1), Wish(expires_at=ends))
    await kit.store.write([Delete(TTL_QUEUE, (ttl_bucket(ends), ends, cid(1).binary))])
    kit.advance(10 * 3600)
    assert await expire_pins(kit.core) == 0
    kinds = [found.kind for found in (await check_catalog(kit.core, mend=True)).found]
    assert "not in the queue of its end" in kinds
    assert await expire_pins(kit.core) == 1
    await refused(get_pin(kit.core, ALICE, cid(1)), "not_found")


@pytest.mark.parametrize("writes", range(8))
async def test_an_expiry_that_dies_anywhere_is_done_once(kit: CatalogKit, writes: int) -> None:
    await create_pin(kit.core, ALICE, cid(1), Wish(expires_at=NOON + timedelta(minutes=5)))
    kit.advance(600)
    kit.core.catalog = Dying(kit.store, writes)
    with pytest.raises(DiedError):
        await expire_pins(kit.core)
    kit.core.catalog = kit.store
    kit.advance(120)
    await expire_pins(kit.core)
    found = await find_pin(kit.core, cid(1))
    assert found is not None
    assert (found.status, found.version) == (UNPINNING, 2)


@pytest.mark.parametrize("writes", range(5))
async def test_a_change_repeated_after_a_death_is_done_and_says_so_or_that_it_was(kit: CatalogKit, writes: int) -> None:
    """As docs/catalog.md says of operations: no death makes a change happen twice, or not at all."""
    for number in (1, 2):
        await create_pin(kit.core, ALICE, cid(number), Wish())
    changes = (
        (lambda: update_pin(kit.core, ALICE, cid(1), Wish(name="x"), version=1, operation_id="u"), "version_conflict"),
        (lambda: delete_pin(kit.core, ALICE, cid(2), 1, "d"), "not_found"),
    )
    for change, was_done in changes:
        kit.core.catalog = Dying(kit.store, writes)
        with contextlib.suppress(DiedError):
            await change()
        kit.core.catalog = kit.store
        (outcome,) = await asyncio.gather(change(), return_exceptions=True)
        assert not isinstance(outcome, BaseException) or getattr(outcome, "code", outcome) == was_done
    changed = (await get_pin(kit.core, ALICE, cid(1))).pin
    assert (changed.name, changed.version) == ("x", 2)
    await refused(get_pin(kit.core, ALICE, cid(2)), "not_found")


@pytest.mark.parametrize("writes", range(5))
async def test_a_pin_whose_maker_dies_is_looked_after_or_not_there(kit: CatalogKit, writes: int) -> None:
    kit.core.catalog = Dying(kit.store, writes)
    with pytest.raises(DiedError):
        await create_pin(kit.core, ALICE, cid(1), Wish(), "op")
    kit.core.catalog = kit.store
    queued: list[Change | Any] = []
    for number in range(SLICES):
        queued += await kit.store.page(QUEUE, (number,), 10)
    pin = await kit.store.get(PINS, (cid(1).prefix, cid(1).binary))
    assert pin is None or queued
    again, _ = await create_pin(kit.core, ALICE, cid(1), Wish(), "op")
    assert len(again.placement["desired"]) == 1
    assert again.status == "queued"


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_list_by_time_of_named_ones_loses_none_of_the_same_moment(kit: CatalogKit, limit: int) -> None:
    for number in range(4):
        await create_pin(kit.core, ALICE, cid(number), Wish())
        kit.advance(number % 2)
    named = frozenset(map(cid, range(4)))
    seen: list[str] = []
    wanted = PinFilter(cids=named)
    for _ in range(5):
        page = await list_by_time(kit.core, "alice", wanted, limit)
        seen += [one.pin.cid.text for one in page.pins]
        if not page.next:
            break
        wanted = PinFilter(cids=named, before=page.pins[-1].pin.created_at)
    assert sorted(seen) == sorted(one.text for one in named)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_all_times_is_refused(moment: str) -> None:
    with pytest.raises(MtsError, match="cursor is not one"):
        pins_listed.read_cursor(f"{moment}_{cid(1)}")
    with pytest.raises(MtsError, match="ISO 8601"):
        parse_catalog.filter_of({"before": moment}, frozenset())


async def test_a_pin_may_end_later_than_an_engine_lets_rows_live(kit: CatalogKit) -> None:
    end = kit.now + timedelta(days=365 * 30)
    await create_pin(kit.core, ALICE, cid(1), Wish(expires_at=end))
    assert await kit.store.get(TTL_QUEUE, (ttl_bucket(end), end, cid(1).binary)) is not None
    assert (expires(cid(1), end, kit.now).life, expires(cid(1), kit.now, kit.now).life) == (0, 30 * 86_400)


async def test_what_an_owner_did_is_not_told_the_next(kit: CatalogKit) -> None:
    await create_pin(kit.core, BOB, cid(1), Wish())
    await delete_pin(kit.core, BOB, cid(1))
    kit.advance(1)
    state, _ = await create_pin(kit.core, ALICE, cid(1), Wish())
    kit.advance(1)
    await update_pin(kit.core, ALICE, cid(1), Wish(name="mine"))
    told = await read_events(kit.core, cid(1), 9, state.pin.created_at)
    assert [(row["event"], row["actor"]) for row in told] == [("pinned", "alice"), ("updated", "alice")]
    assert len(await read_events(kit.core, cid(1), 9)) == 4
