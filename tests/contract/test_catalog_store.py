"""One contract for the catalog's rows: SQLite and Cassandra keep it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from minitoolstream.bootstrap import open_catalog
from minitoolstream.domain.catalog_tables import (
    BY_OWNER,
    CLAIMS,
    OPERATIONS,
    OWNER_DAYS,
    PINS,
    PLACEMENTS,
    QUEUE,
    STATS,
    TTL_QUEUE,
)
from minitoolstream.ports import CatalogStore
from minitoolstream.ports.catalog import Delete, Put, Row
from tests.catalog_kit import catalog_settings, cid

pytestmark = pytest.mark.xdist_group("cassandra")
NOON = datetime(2026, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)


@pytest.fixture(scope="module")
def keyspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    return catalog_settings(tmp_path_factory.mktemp("cql"), request.getfixturevalue("cassandra_server"))


@pytest.fixture(params=["sqlite", "cassandra"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CatalogStore]:
    """All tests of a module share one keyspace: tables take long to make. Each uses keys of its own."""
    settings = catalog_settings(tmp_path) if request.param == "sqlite" else request.getfixturevalue("keyspace")
    opened = open_catalog(settings)
    await opened.migrate()
    yield opened
    await opened.close()


def pin_row(number: int, **more: object) -> Row:
    one = cid(number)
    return {"mh_prefix": one.prefix, "cid_bin": one.binary, "created_at": NOON, "owner": "alice", **more}


def key(number: int) -> tuple[int, bytes]:
    return cid(number).prefix, cid(number).binary


async def test_a_row_comes_back_as_it_was_written(store: CatalogStore) -> None:
    row = pin_row(
        1, rf=3, tags=frozenset({"b", "a"}), metadata={"x": "é"}, size=2**40, ttl=NOON, pin_type=1, status=2, version=1
    )
    await store.write([Put(PINS, row)])
    found = await store.get(PINS, key(1))
    assert found is not None
    assert {name: found[name] for name in row} == row
    assert found["checksum"] is None
    assert await store.get(PINS, key(2)) is None


async def test_what_is_empty_is_never_none(store: CatalogStore) -> None:
    await store.write([Put(PINS, pin_row(3))])
    found = await store.get(PINS, key(3))
    assert found is not None
    assert (found["tags"], found["metadata"]) == (frozenset(), {})


async def test_a_put_leaves_other_columns_alone(store: CatalogStore) -> None:
    await store.write([Put(PINS, pin_row(4, size=7))])
    await store.write([Put(PINS, {**dict(zip(PINS.key, key(4), strict=True)), "rf": 2})])
    found = await store.get(PINS, key(4))
    assert found is not None
    assert (found["size"], found["rf"], found["owner"]) == (7, 2, "alice")


async def test_many_are_read_in_the_order_asked_for(store: CatalogStore) -> None:
    await store.write([Put(PINS, pin_row(number)) for number in (5, 6)])
    found = await store.get_many(PINS, [key(6), key(7), key(5)])
    assert [row and row["cid_bin"] for row in found] == [cid(6).binary, None, cid(5).binary]


async def test_more_are_read_than_one_statement_asks_for(store: CatalogStore) -> None:
    numbers = range(200, 300)
    await store.write_each([Put(PINS, pin_row(number)) for number in numbers if number % 3])
    found = await store.get_many(PINS, [key(number) for number in numbers])
    assert [row and row["cid_bin"] for row in found] == [cid(n).binary if n % 3 else None for n in numbers]
    # Values of the key's columns that were not asked for together do not come together.
    days = [{"owner": owner, "day": day} for owner in ("dave", "erin") for day in ("2026-02-01", "2026-02-02")]
    await store.write([Put(OWNER_DAYS, row) for row in days])
    asked = [("dave", "2026-02-02"), ("erin", "2026-02-01"), ("dave", "2026-02-02")]
    assert await store.get_many(OWNER_DAYS, asked) == [days[1], days[2], days[1]]
    assert await store.get_many(OWNER_DAYS, []) == []


async def test_many_rows_large_and_small_of_many_partitions_and_of_one_are_written(store: CatalogStore) -> None:
    numbers = range(400, 550)
    large = {number: {"mts.note": "x" * 4000} if number % 7 == 0 else {} for number in numbers}
    pins = [Put(PINS, {**pin_row(number), "metadata": large[number]}) for number in numbers]
    rows = [{"slice": 9, "due": NOON, "cid_bin": cid(number).binary} for number in numbers]
    await store.write_in_order([pins, [Put(QUEUE, row) for row in rows]])
    found = await store.get_many(PINS, [key(number) for number in numbers])
    assert [row and row["metadata"] for row in found] == list(large.values())
    assert len(await store.page(QUEUE, (9,), 200)) == len(numbers)


async def test_what_a_step_writes_the_next_may_end(store: CatalogStore) -> None:
    row = {"slice": 10, "due": NOON, "cid_bin": cid(1).binary}
    await store.write_in_order([[Put(QUEUE, row)], [], [Delete(QUEUE, (10, NOON, cid(1).binary))]])
    assert await store.page(QUEUE, (10,), 9) == []


async def test_elements_of_sets_come_and_go_for_themselves(store: CatalogStore) -> None:
    names = dict(zip(PLACEMENTS.key, key(8), strict=True))
    await store.write([Put(PLACEMENTS, {**names, "actual": frozenset("a"), "failed": frozenset("b")})])
    change = Put(PLACEMENTS, names, plus={"actual": frozenset("c")}, minus={"failed": frozenset("b")})
    await store.write([change, Put(PLACEMENTS, names, plus={"in_progress": frozenset("d")})])
    found = await store.get(PLACEMENTS, key(8))
    assert found is not None
    assert (found["actual"], found["failed"], found["in_progress"]) == (frozenset("ac"), frozenset(), frozenset("d"))


async def test_a_partition_is_read_in_order_page_by_page(store: CatalogStore) -> None:
    times = [NOON + timedelta(milliseconds=number) for number in range(5)]
    rows = [{"slice": 1, "due": at, "cid_bin": cid(number).binary} for number, at in enumerate(times)]
    await store.write_each([Put(QUEUE, row) for row in reversed(rows)])
    assert await store.page(QUEUE, (1,), 2) == rows[:2]
    behind = (rows[1]["due"], rows[1]["cid_bin"])
    assert await store.page(QUEUE, (1,), 9, after=behind) == rows[2:]
    assert await store.page(QUEUE, (1,), 9, after=behind, until=(times[3],)) == rows[2:4]
    assert await store.page(QUEUE, (2,), 9) == []


async def test_a_partition_is_read_backwards(store: CatalogStore) -> None:
    days = [{"owner": "carol", "day": f"2026-01-0{number}"} for number in range(1, 5)]
    await store.write([Put(OWNER_DAYS, row) for row in days])
    assert await store.page(OWNER_DAYS, ("carol",), 9, after=("2026-01-03",), descending=True) == days[1::-1]
    row = {"owner": "carol", "day": "2026-01-01", "created_at": NOON, "cid_bin": cid(1).binary}
    await store.write([Put(BY_OWNER, row)])
    assert await store.page(BY_OWNER, ("carol", "2026-01-01"), 1, after=(NOON, b"\xff"), descending=True) == [row]


async def test_a_walk_meets_every_row_once(store: CatalogStore) -> None:
    numbers = range(100, 125)
    await store.write_each([Put(PINS, pin_row(number, owner="walked")) for number in numbers])
    met: list[bytes] = []
    cursor: str | None = None
    while True:
        rows, cursor = await store.walk(PINS, cursor, 4)
        met += [row["cid_bin"] for row in rows if row["owner"] == "walked"]
        if cursor is None:
            break
    assert sorted(met) == sorted(cid(number).binary for number in numbers)


async def test_a_deleted_row_is_gone(store: CatalogStore) -> None:
    await store.write([Put(PINS, pin_row(9))])
    await store.write([Delete(PINS, key(9))])
    assert await store.get(PINS, key(9)) is None


async def test_of_two_that_write_a_new_row_one_is_told_of_the_other(store: CatalogStore) -> None:
    answers = await asyncio.gather(
        *(store.put_new(CLAIMS, {"name": "new", "holder": f"worker-{number}"}) for number in range(8))
    )
    there = await store.get(CLAIMS, ("new",))
    assert there is not None
    assert answers.count(None) == 1
    assert all(answer == there for answer in answers if answer is not None)


async def test_a_row_changes_only_when_it_is_as_expected(store: CatalogStore) -> None:
    await store.put_new(PINS, pin_row(10, version=1))
    changed = {**dict(zip(PINS.key, key(10), strict=True)), "version": 2, "rf": 2}
    expected = {"version": 1, "created_at": NOON}
    answers = await asyncio.gather(*(store.put_if(PINS, changed, expected) for _ in range(8)))
    assert answers.count(None) == 1
    assert all(answer["version"] == 2 for answer in answers if answer is not None)
    there = await store.put_if(PINS, {**changed, "version": 3}, {"version": 7})
    assert there is not None
    assert there["version"] == 2


async def test_a_row_that_is_not_there_does_not_change(store: CatalogStore) -> None:
    changed = {**dict(zip(PINS.key, key(11), strict=True)), "rf": 2}
    assert await store.put_if(PINS, changed, {"version": None, "created_at": NOON}) == {}
    assert await store.get(PINS, key(11)) is None


async def test_a_row_of_the_first_version_has_no_version_and_changes(store: CatalogStore) -> None:
    await store.write([Put(PINS, pin_row(12))])
    changed = {**dict(zip(PINS.key, key(12), strict=True)), "version": 1}
    assert await store.put_if(PINS, changed, {"version": None, "created_at": NOON}) is None


async def test_a_row_is_deleted_only_when_it_is_as_expected(store: CatalogStore) -> None:
    await store.put_new(PINS, pin_row(13, version=4))
    assert not await store.delete_if(PINS, key(13), {"version": 3})
    assert await store.delete_if(PINS, key(13), {"version": 4})
    assert not await store.delete_if(PINS, key(13), {"version": 4})


async def test_counters_add_up(store: CatalogStore) -> None:
    await asyncio.gather(*(store.add(STATS, ("all", "contract"), {"value": amount}) for amount in (5, -2, 1)))
    found = await store.get(STATS, ("all", "contract"))
    assert found is not None
    assert found["value"] == 4


async def test_a_row_with_a_life_goes_by_itself(store: CatalogStore) -> None:
    row = {"ttl_bucket": NOON, "ttl": NOON, "cid_bin": cid(1).binary}
    await store.write([Put(TTL_QUEUE, row, life=1)])
    await store.put_new(OPERATIONS, {"op_id": "short"}, life=1)
    async with asyncio.timeout(30):
        while await store.page(TTL_QUEUE, (NOON,), 9) or await store.get(OPERATIONS, ("short",)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_migrated_store_has_nothing_left_to_migrate(store: CatalogStore) -> None:
    assert await store.migrate() == []
    assert await store.versions() == (["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"], [])
