"""Copies and others who change the same content meanwhile; what a peer has under a content's name already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.domain.catalog_tables import BY_PEER, PEERS, PINS, PLACEMENTS, QUEUE, Table
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.pin import Pin, Wish
from minitoolstream.ports import PayloadStore, StoredPart
from minitoolstream.ports.catalog import Change, Delete, Put, Row
from minitoolstream.services import copy_content, manage_pins, read_ahead, settle_copies
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.claims import take_claim
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.core import Core
from minitoolstream.services.hold_content import let_go
from minitoolstream.services.manage_pins import create_pin, delete_pin, update_pin
from minitoolstream.services.pin_holders import change_pin, find_pin
from minitoolstream.services.place_copies import SLICES, look_at, slice_of
from minitoolstream.services.reconcile_copies import _Share, reconcile_copies
from minitoolstream.services.settle_copies import Counts
from tests.catalog_kit import ALICE, BOB, CatalogKit
from tests.catalog_steps import BODY, CID, DiedError, holders, placement, published, run, status

OTHER = b"other byte"
assert len(OTHER) == len(BODY)


class Meanwhile:
    """A store, and what somebody else does once, just before or behind the write by which copies leave."""

    def __init__(self, store: Any, work: Callable[[], Awaitable[Any]], *, before: bool) -> None:
        self._store, self._work, self._before = store, work, before
        self.told: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        leave = any(
            isinstance(one, Put) and one.table is PLACEMENTS and "actual" in (one.minus or {})
            for step in steps
            for one in step
        )
        if leave and self._before:
            await self._once()
        await self._store.write_in_order(steps)
        if leave and not self._before:
            await self._once()

    async def _once(self) -> None:
        work, self._work = self._work, _nothing
        self.told = await work() or self.told


async def _nothing() -> None: ...


@pytest.mark.parametrize("before", [True, False])
async def test_a_pin_made_while_copies_are_about_to_go_keeps_them(kit: CatalogKit, before: bool) -> None:
    """No message has the bytes: what is removed is lost."""
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    had = holders(kit)
    await delete_pin(kit.core, ALICE, CID)
    kit.advance(5)
    store = Meanwhile(kit.store, lambda: create_pin(kit.core, BOB, CID, Wish(rf=2)), before=before)
    kit.core.catalog = store
    await reconcile_copies(kit.core)
    state, created = store.told
    assert created
    assert state.status == ("pinned" if before else "pinning")
    assert holders(kit) == had
    assert (await placement(kit))["actual"] >= state.placement["desired"] & had
    await run(kit, 90)
    assert await status(kit) == "pinned"
    assert (await placement(kit))["actual"] == holders(kit)
    await nothing_is_out_of_step(kit)


async def test_more_copies_wished_for_while_one_is_about_to_go_keep_it(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    await run(kit)
    await update_pin(kit.core, ALICE, CID, Wish(rf=1))
    kit.advance(5)
    store = Meanwhile(kit.store, lambda: update_pin(kit.core, ALICE, CID, Wish(rf=3)), before=True)
    kit.core.catalog = store
    counts = await reconcile_copies(kit.core)
    assert (counts.removed, store.told.status) == (0, "pinned")
    assert (await run(kit)).copied == 0
    assert holders(kit) == {"eu", "us", "asia"}
    await nothing_is_out_of_step(kit)


async def nothing_is_out_of_step(kit: CatalogKit) -> None:
    kit.core.catalog = kit.store
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_a_pin_that_nobody_takes_up_goes_as_before(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    await run(kit)
    await delete_pin(kit.core, ALICE, CID)
    assert (await run(kit)).removed == 3
    assert (holders(kit), await placement(kit)) == (set(), None)


@pytest.mark.parametrize("part", [4, 1000])
async def test_other_bytes_of_the_same_size_are_no_copy(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """In parts, or whole."""
    monkeypatch.setattr(copy_content, "PART", part)
    for store in kit.peers.stores.values():
        store.client_put(key_of(CID), OTHER)
    await published(kit, rf=1)
    await run(kit)
    row = await placement(kit)
    assert row["actual"] == frozenset()
    (peer,) = row["failed"]
    by_peer = await kit.store.get(BY_PEER, (peer, CID.prefix, CID.binary))
    assert by_peer is not None
    assert by_peer["error_message"] == f"the peer has other bytes at {key_of(CID)}: remove them"
    del kit.peers.stores[peer].objects[key_of(CID)]
    await run(kit, 60)
    assert await status(kit) == "pinned"


@pytest.mark.parametrize("part", [4, 1000])
async def test_a_copy_that_is_there_already_is_one(kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(copy_content, "PART", part)
    for store in kit.peers.stores.values():
        store.client_put(key_of(CID), BODY)
    await published(kit, rf=2)
    assert (await run(kit)).failed == 0
    assert await status(kit) == "pinned"


@pytest.mark.parametrize(("body", "outcome"), [(BODY, "pinned"), (OTHER, "queued")])
async def test_parts_are_not_left_when_another_was_faster(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, body: bytes, outcome: str
) -> None:
    monkeypatch.setattr(copy_content, "PART", 4)
    await published(kit, rf=1)
    (peer,) = (await placement(kit))["desired"]

    class Raced(MemoryPayloads):
        async def complete_multipart(self, name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
            self.client_put(name, body)
            return await super().complete_multipart(name, multipart_id, parts)

    kit.peers.stores[peer] = store = Raced(min_part=1)
    await run(kit)
    assert store.multiparts == {}
    assert await status(kit) == outcome


async def test_a_huge_content_has_no_more_parts_than_a_store_takes(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_content, "PART", 1)
    monkeypatch.setattr(read_ahead, "MAX_PARTS", 4)
    await published(kit, rf=1)
    await run(kit)
    (peer,) = holders(kit)
    assert kit.peers.stores[peer].objects[key_of(CID)].etag.endswith("-4")


class Dying:
    """A store that writes change by change, as an engine without a transaction may, and dies at the n-th."""

    def __init__(self, store: Any, writes: int) -> None:
        self._store, self._left = store, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        for change in (change for step in steps for change in step):
            self._left -= 1
            if self._left < 0:
                raise DiedError
            await self._store.write([change])


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("copies", [3, 0])
async def test_a_reconciler_that_dies_between_any_two_rows_leaves_no_copy_that_no_row_names(
    kit: CatalogKit, writes: int, copies: int
) -> None:
    await published(kit, rf=3)
    kit.advance(5)
    kit.core.catalog = cast(Any, Dying(kit.store, writes))
    with pytest.raises(DiedError):
        await reconcile_copies(kit.core)
    kit.core.catalog = kit.store
    if not copies:
        await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    kit.advance(120)
    await run(kit)
    await run(kit)
    assert len(holders(kit)) == copies
    assert holders(kit) == ((await placement(kit))["actual"] if copies else set())
    assert (await check_catalog(kit.core, deep=True)).found == []


async def listed_at(kit: CatalogKit) -> set[str]:
    rows = await kit.store.get_many(BY_PEER, [(peer, CID.prefix, CID.binary) for peer in kit.peers.known])
    return {row["peer_id"] for row in rows if row is not None}


async def test_a_copy_that_somebody_made_where_it_was_to_be_goes_when_it_is_not_wanted_there(kit: CatalogKit) -> None:
    """Whoever made it died, and no row says more than where it should have been."""
    await published(kit, rf=2)
    full, kept = sorted((await placement(kit))["desired"])
    kit.peers.stores[full].client_put(key_of(CID), BODY)
    await kit.store.write([Put(PEERS, {"peer_id": full, "full_until": kit.now + timedelta(hours=1)})])
    await run(kit)
    assert holders(kit) == await listed_at(kit) == {"eu", "us", "asia"} - {full} > {kept}
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_fewer_copies_wished_for_before_the_first_is_made_leave_no_rows(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    await update_pin(kit.core, ALICE, CID, Wish(rf=1))
    await run(kit)
    assert len(holders(kit)) == 1
    assert await listed_at(kit) == (await placement(kit))["actual"] == holders(kit)
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_copies_not_wanted_for_a_while_stay_as_they_are(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    await run(kit)
    for rf in (1, 3):
        await update_pin(kit.core, ALICE, CID, Wish(rf=rf))
    counts = await run(kit)
    assert (counts.copied, counts.removed) == (0, 0)
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


class Claims:
    """A store that tells when a slice is given up, and lets nothing be written before `go_on`."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.began, self.go_on, self.given_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        self.began.set()
        await self.go_on.wait()
        await self._store.write_in_order(steps)
        self.written += 1

    async def put_if(self, table: Table, row: Row, expected: Row) -> Any:
        if str(row.get("name")).startswith("slice/") and "until" not in expected:
            self.given_up.set()
        return await self._store.put_if(table, row, expected)

    async def is_kept(self) -> bool:
        """Also after a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.given_up.wait(), 0.2)
        return not self.given_up.is_set()


async def test_what_another_has_claimed_meanwhile_is_neither_removed_nor_claimed_back(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reconcile_copies(kit.core)  # all of the queue has been looked at
    await published(kit)
    kit.advance(5)
    share = _Share(kit.core, "mine")
    await share.take()
    (number,) = share.slices
    share.slices = [number, other := (number + 1) % SLICES]
    assert await take_claim(kit.core, f"slice/{other}", "another's")
    await share.take()
    assert (share.has(number), share.has(other)) == (True, False)
    kit.advance(61)
    assert await take_claim(kit.core, f"slice/{number}", "another's")
    monkeypatch.setattr("minitoolstream.services.reconcile_copies.SECONDS", 0.04)
    await asyncio.wait_for(share.keep(), 10)
    assert share.slices == []


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock by which a reconciler knows how long its claim lasts."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("minitoolstream.services.reconcile_copies.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def test_a_claim_that_lapsed_while_another_worked_is_not_taken_again(
    kit: CatalogKit, steady: SimpleNamespace
) -> None:
    await reconcile_copies(kit.core)  # all of the queue has been looked at
    await published(kit)
    kit.advance(5)
    one, two = _Share(kit.core, "one"), _Share(kit.core, "two")
    await one.take()
    (number,) = one.slices
    kit.advance(61)
    steady.now += 61
    await two.take()
    assert two.has(number)
    await two.give_up()
    await one.take()
    assert not one.has(number)


async def cut_off(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, steady: SimpleNamespace, body: bytes, then: bytes
) -> asyncio.Task[Counts]:
    """A reconciler whose claim lapses while it copies `body`; another has ended the content `then` meanwhile."""
    copy, began, go_on = copy_content.copy_content, asyncio.Event(), asyncio.Event()

    async def slow(cid: Cid, target: PayloadStore, *more: Any) -> int:
        if cid == cid_of(body) and target is kit.peers.stores["asia"] and not began.is_set():
            began.set()
            await go_on.wait()
        return await copy(cid, target, *more)

    monkeypatch.setattr(settle_copies, "copy_content", slow)
    one = asyncio.create_task(reconcile_copies(kit.core))
    await began.wait()
    for _ in range(50):  # the other copies are made, and the next page is read
        await asyncio.sleep(0.002)
    await let_go(kit.core, cid_of(then), [f"m/{then.hex()[:20]}"])
    kit.advance(61)
    steady.now += 61
    await reconcile_copies(kit.core)
    assert await find_pin(kit.core, cid_of(then)) is None
    assert await placement(kit, then) is None
    go_on.set()
    return one


async def test_who_was_cut_off_during_a_copy_leaves_it_to_whoever_looks_next(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, steady: SimpleNamespace
) -> None:
    await published(kit, rf=3)
    kit.advance(5)
    await (await cut_off(kit, monkeypatch, steady, BODY, BODY))
    assert holders(kit) == {"asia"}
    for _ in range(3):
        await run(kit, 90)
    assert holders(kit) == set()
    assert await placement(kit) is None
    kit.advance(7200)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_who_was_cut_off_begins_no_copy_of_what_it_has_read_before(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch, steady: SimpleNamespace
) -> None:
    monkeypatch.setattr("minitoolstream.services.reconcile_copies._PAGE", 1)
    first, then = [body for body in (b"%d" % number for number in range(200)) if slice_of(cid_of(body)) == 5][:2]
    for body in (first, then):
        await published(kit, body, rf=3)
        kit.advance(1)
    for row in await kit.store.page(QUEUE, (5,), 9):
        await kit.store.write([Delete(QUEUE, (5, row["due"], row["cid_bin"]))])
    await kit.store.write([look_at(cid_of(first), kit.now), look_at(cid_of(then), kit.now + timedelta(seconds=1))])
    kit.advance(5)
    await (await cut_off(kit, monkeypatch, steady, first, then))
    assert holders(kit, then) == set()


async def test_who_is_cancelled_keeps_its_claim_until_its_rows_are_written(kit: CatalogKit) -> None:
    await published(kit)
    kit.advance(5)
    kit.core.catalog = store = cast(Any, Claims(kit.store))
    running = asyncio.create_task(reconcile_copies(kit.core))
    await store.began.wait()
    running.cancel()
    assert await store.is_kept()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert store.given_up.is_set()
    assert store.written == 1


async def test_who_fails_keeps_its_claims_until_its_other_contents_are_through(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [bytes([number]) for number in range(20)]
    for body in bodies:
        await published(kit, body, rf=1)
    assert len({slice_of(cid_of(body)) for body in bodies}) > 1
    kit.core.catalog = store = cast(Any, Claims(kit.store))
    store.go_on.set()
    copying, go_on = asyncio.Event(), asyncio.Event()

    async def copy(cid: Cid, *_given: Any) -> int:
        if slice_of(cid) == slice_of(cid_of(bodies[0])):
            await copying.wait()
            raise DiedError
        copying.set()
        await go_on.wait()
        return 1

    monkeypatch.setattr("minitoolstream.services.settle_copies.copy_content", copy)
    kit.advance(5)
    running = asyncio.create_task(reconcile_copies(kit.core))
    assert await store.is_kept()
    go_on.set()
    with pytest.raises(DiedError):
        await running
    assert store.given_up.is_set()


class Looking:
    """A store, and a reconciler that looks once, just before a pin is changed."""

    def __init__(self, kit: CatalogKit) -> None:
        self._kit, self._looked = kit, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kit.store, name)

    async def put_if(self, table: Table, row: Row, expected: Row) -> Any:
        if table is PINS and not self._looked:
            self._looked = True
            await reconcile_copies(self._kit.core)
        return await self._kit.store.put_if(table, row, expected)


async def test_a_pin_whose_end_a_reconciler_comes_before_is_looked_at_again(kit: CatalogKit) -> None:
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    kit.core.catalog = cast(Any, Looking(kit))
    await delete_pin(kit.core, ALICE, CID)
    kit.core.catalog = kit.store
    await run(kit)
    assert (holders(kit), await find_pin(kit.core, CID)) == (set(), None)


async def test_a_content_let_go_behind_a_reconcilers_look_is_looked_at_again(kit: CatalogKit) -> None:
    await published(kit)
    await run(kit)
    kit.core.catalog = cast(Any, Looking(kit))
    await let_go(kit.core, CID, [f"m/{BODY.hex()[:20]}"])
    kit.core.catalog = kit.store
    await run(kit)
    assert (holders(kit), await find_pin(kit.core, CID)) == (set(), None)


async def test_a_change_whose_entry_was_met_before_it_and_whose_maker_dies_behind_it_is_met_again(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=1, source=f"0 {len(BODY)} m/x"))
    kit.kit.payloads.client_put("m/x", BODY)
    kit.advance(1)
    await reconcile_copies(kit.core)
    change = change_pin

    async def late(core: Core, before: Pin, after: Pin) -> bool:
        kit.advance(20)
        await reconcile_copies(kit.core)
        assert await change(core, before, after)
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(manage_pins, "change_pin", late)
        with pytest.raises(DiedError):
            await delete_pin(kit.core, ALICE, CID)
    for _ in range(3):
        kit.advance(30)
        await reconcile_copies(kit.core)
    assert await kit.store.get(PINS, CID.key) is None
    assert not any(key_of(CID) in store.objects for store in kit.peers.stores.values())
