"""Queues that are not read from their beginning: what is met all the same, and what is remembered."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from minitoolstream.domain.catalog_tables import CLAIMS, QUEUE
from minitoolstream.domain.pin import Wish
from minitoolstream.services.due_windows import LATE, Seen, read_seen, windows
from minitoolstream.services.manage_pins import create_pin
from minitoolstream.services.place_copies import look_at, slice_of
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, NOON, CatalogKit, cid
from tests.catalog_steps import DiedError

HOUR = timedelta(hours=1)
CID = cid(1)
SLICE = slice_of(CID)


async def seen_of(kit: CatalogKit, number: int) -> Seen | None:
    row = await kit.store.get(CLAIMS, (f"slice/{number}",))
    return read_seen(row["place"]) if row else None


async def queued(kit: CatalogKit) -> int:
    return len(await kit.store.page(QUEUE, (SLICE,), 99))


def test_windows_touch_each_other_and_are_short_where_remains_lie() -> None:
    found = windows(None, NOON)
    assert found[0] == (None, NOON - HOUR)
    assert found[-1][1] == NOON
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    spans = [end - begin for begin, end in found if begin is not None]
    assert max(spans) == timedelta(minutes=5)


def test_a_place_is_read_as_it_was_written_also_that_of_versions_before() -> None:
    seen = Seen(NOON, NOON - HOUR)
    assert read_seen(str(seen)) == seen
    before = read_seen(NOON.isoformat())
    assert before is not None
    assert windows(before, NOON, NOON - 2 * HOUR)[0] == (NOON - 2 * HOUR, NOON - HOUR)


async def test_an_entry_that_comes_late_is_met_at_once_and_one_that_comes_very_late_within_an_hour(
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
    kit.now = start + HOUR
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
    assert seen is not None
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
        content.ended = True

    with monkeypatch.context() as patch:
        patch.setattr(settle, die_at_the_third)
        with pytest.raises(DiedError):
            await reconcile_copies(kit.core)
    seen = await seen_of(kit, SLICE)
    assert seen is not None
    assert seen.upto <= dues[2]
    await reconcile_copies(kit.core)
    assert await queued(kit) == 0
