"""The catalog in SQLite, from its first version on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from minitoolstream.adapters.catalog.migrations import Migration, read_migrations
from minitoolstream.adapters.catalog.sqlite import SqliteCatalog
from minitoolstream.adapters.sql.database import Database
from minitoolstream.adapters.sql.sqlite import SqliteSession
from minitoolstream.bundle import bundled
from minitoolstream.domain.catalog_tables import BY_PEER, PINS, PLACEMENTS
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.pin import FAILED, PINNED, Wish
from minitoolstream.ports.catalog import Put
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.manage_pins import get_pin, update_pin
from minitoolstream.services.reconcile_copies import reconcile_copies
from tests.catalog_kit import ALICE, NOON, CatalogKit, catalog_kit, catalog_settings

BODIES = [f"of the first version {number}".encode() for number in range(20)]


def versions(count: int) -> Callable[[], list[Migration]]:
    return lambda: read_migrations(bundled("catalog") / "migrations")[:count]


def rows_of_the_first_version(body: bytes) -> list[Put]:
    """A pin with one copy of two, and the one that failed."""
    key = cid_of(body).columns
    pin = {"owner": "alice", "rf": 2, "pin_type": 0, "tags": frozenset({"old"}), "created_at": NOON, "updated_at": NOON}
    sets = {"desired": frozenset({"eu", "us"}), "actual": frozenset({"eu"}), "failed": frozenset({"us"})}
    return [
        Put(PINS, {**key, **pin, "metadata": {"app": "x"}, "size": len(body), "status": 1}),
        Put(PLACEMENTS, {**key, **sets, "updated_at": NOON, "reconcile_count": 3, "drift_detected": True}),
        Put(BY_PEER, {"peer_id": "eu", **key, "state": PINNED, "last_seen": NOON}),
        Put(BY_PEER, {"peer_id": "us", **key, "state": FAILED, "last_seen": NOON, "error_message": "full"}),
    ]


async def live_on(kit: CatalogKit) -> None:
    """Those rows are changed, mended and copied like any."""
    for body in BODIES:
        kit.peers.stores["eu"].client_put(f"cid/{cid_of(body)}", body)
    changed = await update_pin(kit.core, ALICE, cid_of(BODIES[0]), Wish(name="old"))
    assert (changed.pin.version, changed.pin.tags) == (1, frozenset({"old"}))
    assert changed.pin.own_metadata == {"app": "x"}
    kit.advance(120)
    assert (await check_catalog(kit.core, mend=True)).findings > 0
    kit.advance(5)
    assert (await reconcile_copies(kit.core)).copied == len(BODIES)
    for body in BODIES:
        state = await get_pin(kit.core, ALICE, cid_of(body))
        assert (state.status, state.placement["actual"]) == ("pinned", {"eu", "us"})
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


async def test_pins_and_placements_of_the_first_version_live_on_in_sqlite(tmp_path: Path) -> None:
    settings = catalog_settings(tmp_path)
    file = settings.home / "data" / "catalog.sqlite"

    def store_of(count: int) -> SqliteCatalog:
        return SqliteCatalog(Database(lambda: SqliteSession(file, "MTS_CATALOG_DATABASE"), 1), versions(count))

    old = store_of(1)
    assert await old.migrate() == ["1.0.0"]
    await old.write([row for body in BODIES for row in rows_of_the_first_version(body)])
    await old.close()
    runners = [store_of(9) for _ in range(3)]
    applied = await asyncio.gather(*(runner.migrate() for runner in runners))
    assert sorted(applied) == [[], [], ["1.1.0", "1.2.0", "1.3.0", "1.4.0"]]
    kit = catalog_kit(tmp_path, "eu", "us", settings=settings)
    await live_on(kit)
    for store in (*runners, kit.store):
        await store.close()
