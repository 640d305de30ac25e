"""Many pins in one operation, on SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minitoolstream.adapters.catalog import sqlite
from minitoolstream.domain.catalog_tables import BATCH_ITEMS, BATCHES, CLAIMS
from minitoolstream.domain.cid import Cid
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pin import Wish
from minitoolstream.services import run_batches as batches
from minitoolstream.services.core import Core
from minitoolstream.services.manage_pins import Actor, PinState, create_pin
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.run_batches import LIFE, batch_items, get_batch, run_batches, start_batch
from tests.catalog_kit import ALICE, BOB, CatalogKit, catalog_kit, cid
from tests.catalog_steps import DiedError, Dying

CIDS = [cid(number) for number in range(35)]


@pytest.fixture
async def kit(kit: CatalogKit, monkeypatch: pytest.MonkeyPatch) -> CatalogKit:
    monkeypatch.setattr(batches, "CHUNK", 10)
    return kit


@pytest.mark.parametrize("kind", ["pin", "unpin"])
async def test_one_operation_started_by_many_at_once_is_one_batch(kit: CatalogKit, kind: str) -> None:
    await start_batch(kit.core, ALICE, "pin", CIDS, Wish())
    await run_batches(kit.core)
    started = await asyncio.gather(
        *(start_batch(kit.core, ALICE, kind, CIDS, Wish(), operation_id="op") for _ in range(4))
    )
    assert len({row["batch_id"] for row in started}) == 1
    assert await run_batches(kit.core) == len(CIDS)
    done = await get_batch(kit.core, ALICE, started[0]["batch_id"])
    assert (done["state"], done["done"], done["failed"]) == ("done", len(CIDS), 0)
    again = await start_batch(kit.core, ALICE, kind, CIDS, Wish(), operation_id="op")
    assert again == done


async def test_a_start_that_comes_late_leaves_results_as_they_are(kit: CatalogKit) -> None:
    """The first has died before it could note its answer, and its batch is done."""
    kit.core.catalog = Dying(kit.store, 1 + 1 + 1)  # the operation, the items, the batch
    with pytest.raises(DiedError):
        await start_batch(kit.core, ALICE, "pin", CIDS, Wish(), operation_id="op")
    kit.core.catalog = kit.store
    await run_batches(kit.core)
    late = await start_batch(kit.core, ALICE, "pin", CIDS, Wish(), operation_id="op")
    assert (late["state"], late["done"]) == ("done", len(CIDS))
    items, _ = await batch_items(kit.core, ALICE, late["batch_id"], -1, 100)
    assert [item["result"] for item in items] == ["pinned"] * len(CIDS)


async def test_the_same_operation_id_is_another_batch_of_another_owner_or_request(kit: CatalogKit) -> None:
    mine = await start_batch(kit.core, ALICE, "pin", CIDS[:5], Wish(), operation_id="op")
    bobs = await start_batch(kit.core, BOB, "pin", CIDS[:5], Wish(), operation_id="op")
    assert mine["batch_id"] != bobs["batch_id"]
    with pytest.raises(MtsError, match="another request"):
        await start_batch(kit.core, ALICE, "pin", CIDS[:6], Wish(), operation_id="op")


@pytest.mark.parametrize(
    ("kind", "writes"),
    [*(("pin", writes) for writes in (1, 20, 60, 150, 200)), *(("unpin", writes) for writes in (1, 20, 60, 100, 130))],
)
async def test_a_batch_whose_worker_dies_is_gone_on_with(kit: CatalogKit, kind: str, writes: int) -> None:
    if kind == "unpin":
        for one in CIDS:
            await create_pin(kit.core, ALICE, one, Wish())
    row = await start_batch(kit.core, ALICE, kind, CIDS, Wish())
    kit.core.catalog = Dying(kit.store, writes)
    with pytest.raises(DiedError):
        await run_batches(kit.core)
    kit.core.catalog = kit.store
    before = await get_batch(kit.core, ALICE, row["batch_id"])
    assert before["state"] == "running"
    assert await run_batches(kit.core) == 0  # the dead one's claim
    kit.advance(61)
    worked = await run_batches(kit.core)
    assert worked <= len(CIDS) - before["done"]
    done = await get_batch(kit.core, ALICE, row["batch_id"])
    assert (done["state"], done["done"], done["failed"]) == ("done", len(CIDS), 0)
    for one in CIDS:
        pin = await find_pin(kit.core, one)
        assert pin is not None
        assert (pin.owner, pin.ended) == ("alice", kind == "unpin")


async def test_an_engine_that_is_away_for_a_moment_fails_no_item(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await start_batch(kit.core, ALICE, "pin", CIDS[:3], Wish())

    async def away(*_given: object) -> None:
        raise MtsError("rate_limited", "slower")

    monkeypatch.setattr(batches, "create_pin", away)
    with pytest.raises(MtsError, match="slower"):
        await run_batches(kit.core)
    monkeypatch.setattr(batches, "create_pin", create_pin)
    assert await run_batches(kit.core) == 3
    assert (await get_batch(kit.core, ALICE, row["batch_id"]))["failed"] == 0


async def test_results_are_paged_over_chunks(kit: CatalogKit) -> None:
    row = await start_batch(kit.core, ALICE, "pin", CIDS, Wish())
    await run_batches(kit.core)
    seen, after, more = [], -1, True
    while more:
        items, more = await batch_items(kit.core, ALICE, row["batch_id"], after, 7)
        seen += [item["cid"] for item in items]
        after = items[-1]["position"]
    assert seen == [one.text for one in CIDS]


async def test_nothing_of_a_batch_stays_for_ever(kit: CatalogKit, monkeypatch: pytest.MonkeyPatch) -> None:
    row = await start_batch(kit.core, ALICE, "pin", CIDS, Wish())
    await run_batches(kit.core)
    assert await kit.store.get(CLAIMS, (f"batch/{row['batch_id']}",)) is None
    await start_batch(kit.core, ALICE, "unpin", CIDS, Wish())  # nobody ever does it
    assert (await kit.store.walk(BATCHES, None, 10))[0]
    now = sqlite._now()
    monkeypatch.setattr(sqlite, "_now", lambda: now + (LIFE + 60) * 1000)
    for table in (BATCHES, BATCH_ITEMS, CLAIMS):
        assert await kit.store.walk(table, None, 10) == ([], None), table.name


async def test_a_batch_is_kept_in_chunks_of_a_thousand(tmp_path: Path) -> None:
    kit = catalog_kit(tmp_path, "eu")
    many = [cid(number % 7) for number in range(2500)]
    row = await start_batch(kit.core, ALICE, "pin", many, Wish())
    assert len(await kit.store.page(BATCH_ITEMS, (row["batch_id"], 2), 3000)) == 500
    items, more = await batch_items(kit.core, ALICE, row["batch_id"], 998, 1000)
    assert ([item["position"] for item in items], more) == (list(range(999, 1999)), True)
    await kit.store.close()


async def test_a_batch_that_fails_keeps_its_claim_until_its_other_items_are_through(
    kit: CatalogKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await start_batch(kit.core, ALICE, "pin", CIDS[:3], Wish())
    go_on = asyncio.Event()

    async def slow(core: Core, actor: Actor, one: Cid, wish: Wish) -> tuple[PinState, bool]:
        if one == CIDS[0]:
            raise unavailable("away")
        await go_on.wait()
        return await create_pin(core, actor, one, wish)

    monkeypatch.setattr(batches, "create_pin", slow)
    running = asyncio.create_task(run_batches(kit.core))
    asyncio.get_running_loop().call_later(0.1, go_on.set)
    with pytest.raises(MtsError, match="away"):
        await running
    items, _ = await batch_items(kit.core, ALICE, row["batch_id"], -1, 9)
    assert [item["result"] for item in items] == [None, "pinned", "pinned"]
