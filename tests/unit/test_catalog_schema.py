"""The catalog's schema: what the migrations lead to, what adapters believe, and what ScyllaDB has too."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    NoSpeculativeExecutionPolicy,
    TokenAwarePolicy,
)

from minitoolstream.adapters.catalog.cql import CqlCatalog
from minitoolstream.adapters.catalog.cql_schema import AddColumn, CreateTable, parse, statements
from minitoolstream.adapters.catalog.cql_session import Answer, CqlPlace, CqlSession
from minitoolstream.adapters.catalog.migrations import read_migrations
from minitoolstream.bundle import bundled
from minitoolstream.domain.catalog_tables import BY_OWNER, OWNER_DAYS, PINS, PLACEMENTS, STATS, TABLES
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.ports.catalog import Delete, Put

SPECIFIED = {
    *("pins_by_cid", "placements_by_cid", "pins_by_peer", "pin_ttl_queue", "op_dedup", "pin_stats", "pin_events"),
    *("partition_stats", "performance_metrics", "batch_operations"),
}
NOT_IN_SCYLLADB = ("MATERIALIZED VIEW", "STORAGEATTACHEDINDEX", "CUSTOM INDEX", "SASI", "VECTOR", "READ_REPAIR_CHANCE")
FEATURES = {"CREATE KEYSPACE", "CREATE TABLE", "ALTER TABLE ADD"}
TYPES = {"blob", "text", "timestamp", "counter", "tinyint", "smallint", "int", "bigint", "boolean", "double"}
PLACE = CqlPlace((("127.0.0.1", 9),), "space", "here", "there", "", timeout=3.5)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TYPES |= {"set<text>", "map<text, text>"}


def schema() -> str:
    return (bundled("catalog") / "schema.cql").read_text("utf-8")


def migrated() -> dict[str, CreateTable]:
    found: dict[str, CreateTable] = {}
    for migration in read_migrations(bundled("catalog") / "migrations"):
        for made in map(parse, migration.statements):
            if isinstance(made, CreateTable):
                assert made.name not in found
                found[made.name] = made
            elif isinstance(made, AddColumn):
                old = found[made.table]
                columns = (*old.columns, (made.column, made.kind))
                found[made.table] = CreateTable(old.name, old.partition, old.clustering, columns, old.options)
    return found


def test_migrations_lead_to_the_schema() -> None:
    whole = [made for made in map(parse, statements(schema())) if isinstance(made, CreateTable)]
    assert {made.name: made for made in whole} == migrated()


def test_all_ten_tables_of_the_specification_are_there() -> None:
    assert set(migrated()) >= SPECIFIED
    versions = [migration.version for migration in read_migrations(bundled("catalog") / "migrations")]
    assert versions == ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"]


def test_adapters_know_the_tables_as_they_are() -> None:
    for name, made in migrated().items():
        table = TABLES[name]
        assert (table.partition, table.clustering, table.columns) == (made.partition, made.clustering, made.columns)
        lives = [option for option in made.options if option.startswith("default_time_to_live")]
        assert [f"default_time_to_live = {table.life}"] * bool(table.life) == lives
    assert set(TABLES) == set(migrated())


def test_nothing_is_used_that_scylladb_lacks() -> None:
    """Of the schema; what is sent beside it, the next test names."""
    texts = [statement for one in read_migrations(bundled("catalog") / "migrations") for statement in one.statements]
    kinds = {re.sub(r"(ADD) .*", r"\1", re.sub(r" (IF NOT EXISTS )?\{keyspace\}\S*", "", text)) for text in texts}
    assert {" ".join(kind.split()[:3] if "ALTER" in kind else kind.split()[:2]) for kind in kinds} == FEATURES
    assert not [word for word in NOT_IN_SCYLLADB if word in schema().upper()]
    assert {kind for made in migrated().values() for _, kind in made.columns} <= TYPES


class Heard:
    """A session that answers nothing and keeps what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def ask(self, text: str, _given: Any = (), *, conditional: bool = False, **_more: Any) -> Answer:
        self.texts.append(text)
        return Answer([{"[applied]": True}] if conditional else [], None)

    async def prepare(self, text: str) -> Heard:
        self.texts.append(text)
        return self

    def bind(self, _given: Any) -> None: ...

    async def send(self, _bound: None) -> None: ...


async def test_statements_are_of_the_forms_that_scylladb_has_too() -> None:
    store, heard = CqlCatalog(PLACE, list), Heard()
    store._session = heard  # type: ignore[assignment]
    owner, clustered = {"owner": "o", "day": "d"}, (NOON, b"c")
    await store.get(OWNER_DAYS, ("o", "d"))
    await store.get_many(OWNER_DAYS, [("o", "d"), ("o", "e")])
    await store.page(BY_OWNER, ("o", "d"), 9, after=clustered, until=(NOON,))
    await store.page(BY_OWNER, ("o", "d"), 9, after=clustered, descending=True)
    await store.walk(OWNER_DAYS, None, 9)
    await store.write([Put(OWNER_DAYS, owner)])
    await store.write([Put(OWNER_DAYS, owner, life=5)])
    await store.write([Delete(OWNER_DAYS, ("o", "d"))])
    names = {"mh_prefix": 1, "cid_bin": b"c"}
    row = {**names, "size": 1}
    await store.write([Put(PLACEMENTS, row, plus={"actual": frozenset("a")}, minus={"failed": frozenset("b")})])
    await store.put_new(OWNER_DAYS, owner)
    await store.put_new(OWNER_DAYS, owner, life=5)
    await store.put_if(PINS, {**names, "rf": 1}, {"version": 1})
    await store.delete_if(PINS, (1, b"c"), {"version": 1})
    await store.add(STATS, ("s", "n"), {"value": 1})
    assert [text.replace("space.", "") for text in heard.texts] == [
        "SELECT owner, day FROM owner_days WHERE owner = ? AND day = ?",
        "SELECT owner, day FROM owner_days WHERE owner IN ? AND day IN ?",
        "SELECT owner, day, created_at, cid_bin FROM pins_by_owner WHERE owner = ? AND day = ?"
        " AND (created_at, cid_bin) > (?, ?) AND (created_at) <= (?) LIMIT ?",
        "SELECT owner, day, created_at, cid_bin FROM pins_by_owner WHERE owner = ? AND day = ?"
        " AND (created_at, cid_bin) < (?, ?) ORDER BY created_at DESC, cid_bin DESC LIMIT ?",
        "SELECT owner, day FROM owner_days",
        "INSERT INTO owner_days (owner, day) VALUES (?, ?)",
        "INSERT INTO owner_days (owner, day) VALUES (?, ?) USING TTL ?",
        "DELETE FROM owner_days WHERE owner = ? AND day = ?",
        "UPDATE placements_by_cid SET size = ?, actual = actual + ?, failed = failed - ?"
        " WHERE mh_prefix = ? AND cid_bin = ?",
        "INSERT INTO owner_days (owner, day) VALUES (?, ?) IF NOT EXISTS",
        "INSERT INTO owner_days (owner, day) VALUES (?, ?) IF NOT EXISTS USING TTL ?",
        "UPDATE pins_by_cid SET rf = ? WHERE mh_prefix = ? AND cid_bin = ? IF version = ?",
        "DELETE FROM pins_by_cid WHERE mh_prefix = ? AND cid_bin = ? IF version = ?",
        "UPDATE pin_stats SET value = value + ? WHERE scope = ? AND name = ?",
    ]


async def test_a_write_of_which_a_part_fails_ends_with_its_last_part() -> None:
    """Whoever holds a claim gives it up behind its writes: none may come later."""
    store, ended = CqlCatalog(PLACE, list), []

    class Bound:
        def __init__(self, given: Any) -> None:
            self.routing_key, self.values = given[0].encode(), [b"x" * 3000]

    class Parts(Heard):
        def bind(self, given: Any) -> Any:
            return Bound(given)

        async def send(self, bound: Any) -> None:
            if bound.routing_key == b"bad":
                raise unavailable("away")
            await asyncio.sleep(0.01)
            ended.append(bound.routing_key)

    store._session = Parts()  # type: ignore[assignment]
    with pytest.raises(MtsError):
        await store.write_each([Delete(OWNER_DAYS, (owner, "d")) for owner in ("good", "bad", "well")])
    assert ended == [b"good", b"well"]


LEVELED = (
    "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '160', 'tombstone_threshold': '0.2'}"
)
WINDOWED = (
    "compaction = {'class': 'TimeWindowCompactionStrategy',"
    " 'compaction_window_unit': '%s', 'compaction_window_size': '%d'}"
)
ROWS = "caching = {'keys': 'ALL', 'rows_per_partition': '%s'}"
LZ4 = "compression = {'class': 'LZ4Compressor'}"
LIFE = "default_time_to_live = %d"
MONTH = LIFE % 2592000


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("pins_by_cid", {LEVELED, ROWS % 1000, LZ4}),
        ("placements_by_cid", {LEVELED, ROWS % 1000, LZ4}),
        ("pins_by_peer", {LEVELED, ROWS % "NONE", LZ4}),
        ("pin_ttl_queue", {WINDOWED % ("DAYS", 1), MONTH, LZ4}),
        ("op_dedup", {WINDOWED % ("HOURS", 6), LIFE % 86400, LZ4}),
        ("pin_stats", {LEVELED, LZ4}),
        ("pin_events", {WINDOWED % ("DAYS", 1), MONTH, LZ4}),
        ("partition_stats", {LEVELED, LZ4}),
        ("performance_metrics", {WINDOWED % ("DAYS", 1), MONTH, LZ4}),
        ("batch_operations", {LEVELED, LZ4}),
    ],
)
def test_tables_are_made_with_these_options(table: str, options: set[str]) -> None:
    assert migrated()[table].options == options


def test_the_keyspace_is_replicated_by_datacenter() -> None:
    assert "NetworkTopologyStrategy" in schema()


def profiles() -> dict[Any, Any]:
    """Of a cluster that is not connected to."""
    session = CqlSession(PLACE)
    cluster = session._new_cluster()
    found = dict(cluster.profile_manager.profiles)
    cluster.shutdown()
    return found


def test_what_is_asked_is_decided_in_a_datacenter_and_has_a_time() -> None:
    found = profiles()
    for name, datacenter in ((EXEC_PROFILE_DEFAULT, "here"), ("home", "there")):
        profile = found[name]
        assert profile.consistency_level == ConsistencyLevel.LOCAL_QUORUM
        assert profile.serial_consistency_level == ConsistencyLevel.LOCAL_SERIAL
        assert profile.request_timeout == 3.5
        policy = profile.load_balancing_policy
        assert isinstance(policy, TokenAwarePolicy)
        assert isinstance(policy._child_policy, DCAwareRoundRobinPolicy)
        assert policy._child_policy.local_dc == datacenter
    # What decides by a condition is sent once.
    assert isinstance(found[EXEC_PROFILE_DEFAULT].speculative_execution_policy, ConstantSpeculativeExecutionPolicy)
    assert isinstance(found["home"].speculative_execution_policy, NoSpeculativeExecutionPolicy)


@pytest.mark.parametrize(
    ("conditional", "idempotent", "twice"), [(False, True, True), (True, True, False), (False, False, False)]
)
async def test_only_what_may_be_done_twice_is_sent_twice(conditional: bool, idempotent: bool, twice: bool) -> None:
    session, sent = CqlSession(PLACE), []

    class Driver:
        def prepare(self, _text: str) -> Any:
            policies = ("retry_policy", "consistency_level", "serial_consistency_level", "fetch_size", "custom_payload")
            return SimpleNamespace(column_metadata=[], **dict.fromkeys(policies))

        def execute_async(self, statement: Any, **options: Any) -> Any:
            sent.append((statement.is_idempotent, options["execution_profile"], options["timeout"]))
            raise OSError("no server")

    session._session, session._default_profile = Driver(), "default"
    with pytest.raises(MtsError):
        await session.ask("SELECT", conditional=conditional, idempotent=idempotent)
    assert sent == [(twice, "home" if conditional else "default", 3.5)]
