"""The catalog's schema: what the migrations lead to, what adapters believe, and what ScyllaDB has too."""

from __future__ import annotations

import re

from minitoolstream.adapters.catalog.migrations import read_migrations
from minitoolstream.bundle import bundled
from minitoolstream.domain.catalog_tables import TABLES
from minitoolstream.domain.cql_schema import AddColumn, CreateTable, parse, statements

SPECIFIED = {
    *("pins_by_cid", "placements_by_cid", "pins_by_peer", "pin_ttl_queue", "op_dedup", "pin_stats", "pin_events"),
    *("partition_stats", "performance_metrics", "batch_operations"),
}
NOT_IN_SCYLLADB = ("MATERIALIZED VIEW", "STORAGEATTACHEDINDEX", "CUSTOM INDEX", "SASI", "VECTOR", "READ_REPAIR_CHANCE")
FEATURES = {"CREATE KEYSPACE", "CREATE TABLE", "ALTER TABLE ADD"}
TYPES = {"blob", "text", "timestamp", "counter", "tinyint", "smallint", "int", "bigint", "boolean", "double"}
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
    assert versions == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


def test_adapters_know_the_tables_as_they_are() -> None:
    for name, made in migrated().items():
        table = TABLES[name]
        assert (table.partition, table.clustering, table.columns) == (made.partition, made.clustering, made.columns)
        lives = [option for option in made.options if option.startswith("default_time_to_live")]
        assert [f"default_time_to_live = {table.life}"] * bool(table.life) == lives
    assert set(TABLES) == set(migrated())


def test_nothing_is_used_that_scylladb_lacks() -> None:
    """Beside these: SELECT with LIMIT, ORDER BY, tuples of clustering columns and paging; INSERT, UPDATE, DELETE with
    TTL and IF; counters; logged batches."""
    texts = [statement for one in read_migrations(bundled("catalog") / "migrations") for statement in one.statements]
    kinds = {re.sub(r"(ADD) .*", r"\1", re.sub(r" (IF NOT EXISTS )?\{keyspace\}\S*", "", text)) for text in texts}
    assert {" ".join(kind.split()[:3] if "ALTER" in kind else kind.split()[:2]) for kind in kinds} == FEATURES
    assert not [word for word in NOT_IN_SCYLLADB if word in schema().upper()]
    assert {kind for made in migrated().values() for _, kind in made.columns} <= TYPES


def test_tables_are_made_as_the_specification_says() -> None:
    pins = migrated()["pins_by_cid"].options
    assert any("LeveledCompactionStrategy" in option and "160" in option for option in pins)
    assert "caching = {'keys': 'ALL', 'rows_per_partition': '1000'}" in pins
    assert "compression = {'class': 'LZ4Compressor'}" in pins
    queue = migrated()["pin_ttl_queue"].options
    assert any("TimeWindowCompactionStrategy" in option and "DAYS" in option for option in queue)
    assert "NetworkTopologyStrategy" in schema()
