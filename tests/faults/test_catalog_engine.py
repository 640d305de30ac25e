"""The catalog on Cassandra: migrations, an engine that goes and comes back, reconcilers killed by -9."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minitoolstream.adapters.catalog.cql import CqlCatalog
from minitoolstream.adapters.catalog.cql_session import CqlPlace
from minitoolstream.adapters.catalog.migrations import Migration, read_migrations
from minitoolstream.bootstrap import open_catalog
from minitoolstream.bundle import bundled
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.catalog_tables import (
    BATCH_ITEMS,
    BATCHES,
    BY_PEER,
    CLAIMS,
    PINS,
    QUEUE,
    REFS_BY_SUBJECT,
    TTL_QUEUE,
    Table,
)
from minitoolstream.domain.cid import cid_of
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import NOBODY, Wish, ttl_bucket
from minitoolstream.domain.subject_settings import Copies
from minitoolstream.ports.catalog import Key, Put
from minitoolstream.services.check_catalog import check_catalog
from minitoolstream.services.claims import take_claim
from minitoolstream.services.follow_subjects import follow_subjects, note_subject
from minitoolstream.services.hold_content import Reference, hold_content
from minitoolstream.services.list_pins import PinFilter, list_pins
from minitoolstream.services.manage_pins import create_pin, delete_pin, get_pin, update_pin
from minitoolstream.services.place_copies import expires, look_at, slice_of
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.run_batches import LIFE, get_batch, run_batches, start_batch
from minitoolstream.services.tend_catalog import tend_catalog
from tests.catalog_kit import ALICE, BOB, CatalogKit, catalog_kit, catalog_settings, cid
from tests.servers import MOST_TOMBSTONES, CassandraServer
from tests.unit.catalog.test_copy_races import Meanwhile
from tests.unit.catalog.test_follow import Stream
from tests.unit.test_catalog_migrations import BODIES, live_on, rows_of_the_first_version

pytestmark = pytest.mark.xdist_group("cassandra")


def migrations() -> list[Migration]:
    return read_migrations(bundled("catalog") / "migrations")


def store_of(settings: Settings, versions: int | None = None) -> CqlCatalog:
    """A store that knows the first so many versions, or all."""
    hosts, keyspace = CqlPlace.hosts_of(settings["catalog.database"])
    place = CqlPlace(hosts, keyspace, "datacenter1", "datacenter1", settings["catalog.replication"])
    return CqlCatalog(place, lambda: migrations()[:versions])


@pytest.fixture(scope="module")
def keyspace(cassandra_server: CassandraServer, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return catalog_settings(tmp_path_factory.mktemp("cql"), cassandra_server)


@pytest.fixture
async def kit(keyspace: Settings, tmp_path: Path) -> AsyncIterator[CatalogKit]:
    made = catalog_kit(tmp_path, "eu", "us", "asia", settings=keyspace)
    await made.store.migrate()
    yield made
    await made.store.close()


async def test_queues_go_on_however_much_was_taken_out_of_them(
    cassandra_server: CassandraServer, tmp_path: Path
) -> None:
    """The engine refuses a read that meets the remains of too many rows."""
    kit = catalog_kit(tmp_path, "eu", "us", settings=catalog_settings(tmp_path, cassandra_server))
    await kit.store.migrate()
    count, due = MOST_TOMBSTONES + 100, kit.now + timedelta(minutes=1)
    cids = [one for one in map(cid, range(40 * count)) if slice_of(one) == 3][:count]
    stream = Stream(kit)
    await note_subject(kit.core, "s", {"rf": 1})
    await tend_catalog(kit.core)
    places: list[tuple[Table, Key]] = [(QUEUE, (3,)), (TTL_QUEUE, (ttl_bucket(due),)), (REFS_BY_SUBJECT, ("s", 0))]
    for number, one in enumerate(cids, 10):  # fewer than these have never been
        entry = {"subject": "s", "part": 0, "sequence": number, "cid_bin": one.binary}
        await kit.store.write_each([look_at(one, due), expires(one, due, kit.now), Put(REFS_BY_SUBJECT, entry)])
    assert [len(await kit.store.page(*place, 2 * count)) for place in places] == [count] * 3
    stream.extents = [msgspec.structs.replace(stream.publish(b"the first that is there"), sequence=count + 10)]
    for _ in range(3):
        kit.advance(200)
        await tend_catalog(kit.core)
    for place in places:  # all has gone, and what remains is too much for one read
        with pytest.raises(MtsError):
            await kit.store.page(*place, 1)
    await create_pin(kit.core, ALICE, cids[0], Wish(rf=1, expires_at=kit.now + timedelta(minutes=2)))
    stream.extents = [msgspec.structs.replace(stream.extents[0], sequence=count + 11)]
    kit.advance(200)
    await tend_catalog(kit.core)
    await tend_catalog(kit.core)
    assert await kit.store.get(PINS, cids[0].key) is None
    assert await kit.store.get(REFS_BY_SUBJECT, ("s", 0, count + 10)) is None
    await kit.store.close()


async def test_rows_of_the_first_version_live_on_and_two_runners_migrate_once(
    cassandra_server: CassandraServer, tmp_path: Path
) -> None:
    settings = catalog_settings(tmp_path, cassandra_server)
    old = store_of(settings, 1)
    assert await old.migrate() == ["1.0.0"]
    for put in (row for body in BODIES for row in rows_of_the_first_version(body)):
        names, marks = ", ".join(put.row), ", ".join("?" * len(put.row))
        insert = f"INSERT INTO {old._keyspace}.{put.table.name} ({names}) VALUES ({marks})"
        await old._session.ask(insert, list(put.row.values()))
    await old.close()
    runners = [store_of(settings), store_of(settings)]
    applied = await asyncio.gather(*(runner.migrate() for runner in runners))
    assert sorted(applied) == [[], ["1.1.0", "1.2.0", "1.3.0", "1.4.0"]]
    kit = catalog_kit(tmp_path, "eu", "us", settings=settings)
    assert (await kit.store.versions())[1] == []
    await live_on(kit)
    for store in (*runners, kit.store):
        await store.close()


async def test_pins_and_copies_work_on_cassandra(kit: CatalogKit) -> None:
    bodies = [f"cassandra {number}".encode() for number in range(12)]
    for body in bodies:
        kit.peers.stores["eu"].client_put(f"cid/{cid_of(body)}", body)
        await create_pin(kit.core, ALICE, cid_of(body), Wish(rf=2, tags=frozenset({"t"})), body.hex())
    kit.advance(5)
    runs = await asyncio.gather(*(reconcile_copies(kit.core) for _ in range(3)))
    assert sum(run.failed for run in runs) == 0
    for body in bodies:
        state = await get_pin(kit.core, ALICE, cid_of(body))
        assert state.placement["actual"] == state.placement["desired"]
    first = await list_pins(kit.core, "alice", PinFilter(tag="t"), 7)
    rest = await list_pins(kit.core, "alice", PinFilter(tag="t"), 7, first.next)
    assert len({one.pin.cid for one in first.pins + rest.pins}) == 12
    kit.advance(120)
    assert (await check_catalog(kit.core, deep=True)).found == []


@pytest.mark.parametrize("name", ["datacenter", "home"])
async def test_a_datacenter_that_is_not_there_is_told(
    cassandra_server: CassandraServer, tmp_path: Path, name: str
) -> None:
    url = {"MTS_CATALOG_DATABASE": cassandra_server.url("nowhere"), f"MTS_CATALOG_{name.upper()}": "nowhere"}
    store = open_catalog(load_settings({"MTS_HOME": str(tmp_path), **url}, cwd=tmp_path))
    with pytest.raises(MtsError, match=r"no node up in the datacenter .*nowhere") as caught:
        await store.migrate()
    assert caught.value.code == "unavailable"
    await store.close()


async def test_statements_go_to_a_node_that_has_the_row(kit: CatalogKit) -> None:
    """With one node any would do; the driver must know all the same which one it is."""
    store = kit.store
    assert isinstance(store, CqlCatalog)
    prepared = await store._session.prepare(store.get_text(PINS))
    bound = prepared.bind((cid(1).prefix, cid(1).binary))
    metadata = store._session._cluster.metadata
    assert len(metadata.get_replicas(bound.keyspace, bound.routing_key)) == 1


async def test_of_many_that_claim_at_once_one_gets_it(kit: CatalogKit) -> None:
    async def claim(name: str) -> list[bool]:
        return await asyncio.gather(*(take_claim(kit.core, name, f"h{number}") for number in range(10)))

    for name in ("contended", "and once more"):
        taken = await claim(name)
        assert taken.count(True) == 1
        assert await claim(name) == taken
    kit.advance(61)
    assert (await claim("contended")).count(True) == 1


async def test_a_pin_that_comes_back_on_cassandra_keeps_its_copies(kit: CatalogKit) -> None:
    body = b"comes back"
    one = cid_of(body)
    kit.peers.stores["eu"].client_put(f"cid/{one}", body)
    await create_pin(kit.core, ALICE, one, Wish(rf=2))
    kit.advance(5)
    await reconcile_copies(kit.core)
    await delete_pin(kit.core, ALICE, one)
    kit.advance(5)
    store = Meanwhile(kit.store, lambda: create_pin(kit.core, BOB, one, Wish(rf=2)), before=True)
    kit.core.catalog = store
    await reconcile_copies(kit.core)
    assert store.told[0].status == "pinned"
    kit.advance(5)
    await reconcile_copies(kit.core)
    state = await get_pin(kit.core, BOB, one)
    assert state.status == "pinned"
    assert {peer for peer, held in kit.peers.stores.items() if held.objects} >= state.placement["actual"]


async def test_fewer_copies_wished_for_before_the_first_leave_no_rows_on_cassandra(kit: CatalogKit) -> None:
    body = b"wished for, and not any more"
    one = cid_of(body)
    kit.peers.stores["eu"].client_put(f"cid/{one}", body)
    await create_pin(kit.core, ALICE, one, Wish(rf=3))
    for rf in (1, 3, 1):
        await update_pin(kit.core, ALICE, one, Wish(rf=rf))
    kit.advance(5)
    await reconcile_copies(kit.core)
    placement = (await get_pin(kit.core, ALICE, one)).placement
    rows = await kit.store.get_many(BY_PEER, [(peer, one.prefix, one.binary) for peer in kit.peers.known])
    assert {row["peer_id"] for row in rows if row is not None} == placement["actual"] == placement["desired"]
    assert (len(placement["actual"]), placement["in_progress"]) == (1, frozenset())


async def test_what_only_messages_hold_stays_in_their_list_on_cassandra(kit: CatalogKit) -> None:
    held = cid_of(b"held by a message")
    await hold_content(kit.core, held, Reference("message/1", 1, frozenset(), "m/1", None, 17))
    await create_pin(kit.core, ALICE, held, Wish())
    await delete_pin(kit.core, ALICE, held)
    assert held in [one.pin.cid for one in (await list_pins(kit.core, NOBODY, PinFilter(), 100)).pins]


async def test_a_subject_is_followed_from_its_first_message_when_other_copies_are_asked_for_on_cassandra(
    cassandra_server: CassandraServer, tmp_path: Path
) -> None:
    kit = catalog_kit(tmp_path, "eu", "us", settings=catalog_settings(tmp_path, cassandra_server))
    await kit.store.migrate()
    await note_subject(kit.core, "s", {"rf": 2})
    stream = Stream(kit)
    stream.publish(b"followed on an engine")
    done = []
    for copies in (Copies(2), Copies(2), Copies(1, ["eu"]), Copies(1, ["eu"]), None, None, Copies(2)):
        stream.copies = copies
        done.append(await follow_subjects(kit.core))
    assert done == [(1, 0), (0, 0), (1, 0), (0, 0), (0, 1), (0, 0), (1, 0)]
    await kit.store.close()


async def test_a_batch_on_cassandra_is_one_and_ends(kit: CatalogKit) -> None:
    cids = [cid(number) for number in range(500, 512)]
    started = await asyncio.gather(
        *(start_batch(kit.core, ALICE, "pin", cids, Wish(), operation_id="engine") for _ in range(3))
    )
    (batch_id,) = {row["batch_id"] for row in started}
    assert await run_batches(kit.core) == len(cids)
    done = await get_batch(kit.core, ALICE, batch_id)
    assert (done["state"], done["done"], done["failed"]) == ("done", len(cids), 0)
    assert await kit.store.get(CLAIMS, (f"batch/{batch_id}",)) is None
    store = kit.store
    assert isinstance(store, CqlCatalog)
    for table, columns in ((BATCHES, "owner, total, state"), (BATCH_ITEMS, "cid, result")):
        lives = ", ".join(f"TTL({column})" for column in columns.split(", "))
        for row in await store._session.run(f"SELECT {lives} FROM {store._keyspace}.{table.name}"):
            assert all(life is not None and 0 < life <= LIFE for life in row), table.name


async def answered(work: Any) -> Any:
    """None while the engine is away."""
    try:
        return await work
    except MtsError as error:
        if error.code != "unavailable":
            raise
        return None


async def test_an_engine_that_is_away_is_a_503_and_comes_back_without_a_restart(
    cassandra_server: CassandraServer, keyspace: Settings, kit: CatalogKit
) -> None:
    """The last test of the group: it stops the server that the others share, and starts it again."""
    await create_pin(kit.core, ALICE, cid(77), Wish())
    cassandra_server.kill()

    async def refused(work: Any) -> None:
        with pytest.raises(MtsError) as caught:
            await work
        assert caught.value.code == "unavailable"
        assert caught.value.retryable

    await refused(create_pin(kit.core, ALICE, cid(78), Wish()))
    await refused(get_pin(kit.core, ALICE, cid(77)))
    fresh = open_catalog(keyspace)
    await refused(fresh.get(PINS, (cid(77).prefix, cid(77).binary)))
    await fresh.close()
    await asyncio.to_thread(cassandra_server.start)
    async with asyncio.timeout(60):
        while (found := await answered(get_pin(kit.core, ALICE, cid(77)))) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert found.pin.owner == "alice"
    assert await kit.store.get(PINS, (cid(78).prefix, cid(78).binary)) is None
    made, created = await create_pin(kit.core, ALICE, cid(78), Wish())
    assert created
    assert made.pin.version == 1
