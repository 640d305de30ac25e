"""What `check` tells of a catalog, and mends."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from minitoolstream.domain.catalog_tables import PEERS, QUEUE, STATS
from minitoolstream.domain.pin import Wish
from minitoolstream.ports.catalog import Delete, Put
from minitoolstream.services.check_catalog import Finding, check_catalog
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.manage_pins import create_pin, delete_pin, get_pin, update_pin
from minitoolstream.services.place_copies import SLICES
from tests.catalog_kit import ALICE, CatalogKit
from tests.catalog_steps import BODY, CID, DiedError, Dying, holders, published, run


async def test_a_change_whose_followers_were_never_written_is_found_and_mended(kit: CatalogKit) -> None:
    """Whoever changes a pin dies behind its row, and a reconciler has looked before that."""
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=1))
    await run(kit)
    kit.core.catalog = Dying(kit.store, 2)
    with pytest.raises(DiedError):
        await update_pin(kit.core, ALICE, CID, Wish(rf=3))
    kit.core.catalog = kit.store
    for number in range(SLICES):
        for row in await kit.store.page(QUEUE, (number,), 9):
            await kit.store.write([Delete(QUEUE, (number, row["due"], row["cid_bin"]))])
    kit.advance(120)
    (found,) = (await check_catalog(kit.core, mend=True)).found
    assert found.kind == "not wanted where it should be"
    await run(kit)
    assert holders(kit) == {"eu", "us", "asia"}
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


@pytest.mark.parametrize("deep", [False, True])
async def test_copies_that_failed_are_told_at_once_and_copies_under_way_are_not(kit: CatalogKit, deep: bool) -> None:
    await create_pin(kit.core, ALICE, CID, Wish(rf=3))
    assert (await check_catalog(kit.core, deep=deep)).found == []
    await run(kit)
    told = Finding("drift", CID.text, "wanted asia, eu, us, there none")
    assert (await check_catalog(kit.core, deep=deep)).found == [told]
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=deep)).found == [told]
    kit.peers.stores["eu"].client_put(key_of(CID), BODY)
    await run(kit)
    assert (await check_catalog(kit.core, deep=deep)).found == []


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("gone", [{"state": "lost", "since": None}, {"full_until": "later"}])
async def test_a_pin_for_which_there_are_too_few_peers_is_told(
    kit: CatalogKit, gone: dict[str, object], deep: bool
) -> None:
    await published(kit, rf=2)
    if "full_until" in gone:
        gone = {"full_until": kit.now + timedelta(hours=1)}
    await kit.store.write([Put(PEERS, {"peer_id": peer, **gone}) for peer in ("eu", "us", "asia")])
    for store in kit.peers.stores.values():
        store.down = True
    await run(kit)
    for store in kit.peers.stores.values():
        store.down = False
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=deep)).found == [
        Finding("too few peers", CID.text, "0 of 2 copies: other peers are lost, full, or not of its zones")
    ]


def hours_later(kit: CatalogKit, hours: float) -> None:
    """By the clock of the stores."""
    kit.now = datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=hours)


async def test_copies_at_a_peer_that_was_away_from_the_configuration_are_found_and_removed(kit: CatalogKit) -> None:
    hours_later(kit, 0)
    eu = kit.peers.stores["eu"]
    kit.kit.payloads.client_put("m/1", BODY)
    await create_pin(kit.core, ALICE, CID, Wish(rf=3, source=f"0 {len(BODY)} m/1"))
    await run(kit)
    place = kit.peers.known.pop("eu")
    for _ in range(3):
        await run(kit, 120)
    await delete_pin(kit.core, ALICE, CID)
    await run(kit, 120)
    kit.peers.known["eu"] = place
    assert holders(kit) == {"eu"}
    foreign = [f"cid/{name}" for name in (CID.text.upper(), "of somebody else")]
    for name in foreign:
        eu.client_put(name, BODY)
    hours_later(kit, 0.9)
    assert (await check_catalog(kit.core, deep=True, mend=True)).found == []
    hours_later(kit, 1.1)
    stray = Finding("copy that no row names", CID.text, "eu")
    assert (await check_catalog(kit.core, deep=True)).found == [stray]
    assert (await check_catalog(kit.core, deep=True, mend=True)).mended == 1
    await run(kit)
    assert list(eu.objects) == foreign
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_a_copy_that_no_row_names_stays_where_it_is_wanted_by_then(kit: CatalogKit) -> None:
    for store in kit.peers.stores.values():
        store.client_put(key_of(CID), BODY)
    hours_later(kit, 2)
    assert (await check_catalog(kit.core, deep=True, mend=True)).mended == 3
    await create_pin(kit.core, ALICE, CID, Wish(rf=2))
    await run(kit)
    state = await get_pin(kit.core, ALICE, CID)
    assert (state.status, holders(kit)) == ("pinned", state.placement["desired"])
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_a_peer_that_cannot_be_listed_is_told(kit: CatalogKit) -> None:
    kit.peers.stores["us"].down = True
    (found,) = (await check_catalog(kit.core, deep=True)).found
    assert (found.kind, found.about[:4]) == ("peer not reached", "us: ")


async def test_a_copy_that_was_lost_and_made_again_is_counted_once(kit: CatalogKit) -> None:
    await published(kit)
    await run(kit)
    peer = min(holders(kit))
    del kit.peers.stores[peer].objects[key_of(CID)]
    assert [one.kind for one in (await check_catalog(kit.core, deep=True, mend=True)).found] == ["copy missing"]
    await run(kit)
    assert peer in holders(kit)
    counted = await kit.store.get(STATS, (f"peer/{peer}", "bytes"))
    assert counted is not None
    assert counted["value"] == len(BODY)
