"""The catalog's tables, as `catalog/schema.cql` makes them: what adapters need to know to read and write a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Table:
    """`columns`: name and CQL type. `life`: seconds that a row stays when nothing else is said."""

    name: str
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    life: int | None = None

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.partition + self.clustering

    @cached_property
    def types(self) -> dict[str, str]:
        return dict(self.columns)


def _table(
    name: str, partition: tuple[str, ...], clustering: tuple[str, ...], columns: str, life: int | None = None
) -> Table:
    pairs = tuple((name, kind) for name, _, kind in (part.partition(" ") for part in columns.split("; ")))
    return Table(name, partition, clustering, pairs, life)


PINS = _table(
    "pins_by_cid",
    ("mh_prefix",),
    ("cid_bin",),
    "mh_prefix smallint; cid_bin blob; pin_type tinyint; rf tinyint; owner text; tags set<text>; ttl timestamp; "
    "metadata map<text, text>; created_at timestamp; updated_at timestamp; size bigint; status tinyint; "
    "version int; checksum text; priority tinyint",
)
PLACEMENTS = _table(
    "placements_by_cid",
    ("mh_prefix",),
    ("cid_bin",),
    "mh_prefix smallint; cid_bin blob; desired set<text>; actual set<text>; failed set<text>; "
    "updated_at timestamp; reconcile_count int; drift_detected boolean; in_progress set<text>; "
    "last_reconcile timestamp; size bigint",
)
BY_PEER = _table(
    "pins_by_peer",
    ("peer_id",),
    ("mh_prefix", "cid_bin"),
    "peer_id text; mh_prefix smallint; cid_bin blob; state tinyint; last_seen timestamp; assigned_at timestamp; "
    "completed_at timestamp; error_message text; retry_count int; pin_size bigint",
)
TTL_QUEUE = _table(
    "pin_ttl_queue",
    ("ttl_bucket",),
    ("ttl", "cid_bin"),
    "ttl_bucket timestamp; ttl timestamp; cid_bin blob",
    life=2592000,
)
OPERATIONS = _table(
    "op_dedup",
    ("op_id",),
    (),
    "op_id text; owner text; digest text; answer text; created_at timestamp",
    life=86400,
)
STATS = _table(
    "pin_stats",
    ("scope",),
    ("name",),
    "scope text; name text; value counter",
)
EVENTS = _table(
    "pin_events",
    ("cid_bin",),
    ("at", "event"),
    "cid_bin blob; at timestamp; event text; actor text; details text",
    life=2592000,
)
PARTITION_STATS = _table(
    "partition_stats",
    ("slice",),
    ("mh_prefix",),
    "slice tinyint; mh_prefix smallint; pins counter; bytes counter",
)
PERFORMANCE = _table(
    "performance_metrics",
    ("metric", "day"),
    ("at",),
    "metric text; day text; at timestamp; value double; note text",
    life=2592000,
)
BATCHES = _table(
    "batch_operations",
    ("batch_id",),
    (),
    "batch_id text; kind text; owner text; request text; total int; done int; failed int; state text; "
    "created_at timestamp; updated_at timestamp",
)
REFS = _table(
    "pin_refs",
    ("cid_bin",),
    ("ref",),
    "cid_bin blob; ref text; rf tinyint; zones set<text>; object_name text; first_byte bigint; size bigint; "
    "created_at timestamp",
)
BY_OWNER = _table(
    "pins_by_owner",
    ("owner", "day"),
    ("created_at", "cid_bin"),
    "owner text; day text; created_at timestamp; cid_bin blob",
)
OWNER_DAYS = _table(
    "owner_days",
    ("owner",),
    ("day",),
    "owner text; day text",
)
QUEUE = _table(
    "reconcile_queue",
    ("slice",),
    ("due", "cid_bin"),
    "slice tinyint; due timestamp; cid_bin blob",
)
CLAIMS = _table(
    "claims",
    ("name",),
    (),
    "name text; holder text; until timestamp; place text",
)
PEERS = _table(
    "peers",
    ("peer_id",),
    (),
    "peer_id text; state text; since timestamp; reason text; full_until timestamp",
)
BATCH_ITEMS = _table(
    "batch_items",
    ("batch_id", "chunk"),
    ("position",),
    "batch_id text; chunk int; position int; cid text; result text; error text",
)
SUBJECTS = _table(
    "subjects",
    ("slice",),
    ("subject",),
    "slice tinyint; subject text; next_sequence bigint; first_sequence bigint; noted_at timestamp; rf tinyint; "
    "zones set<text>",
)
REFS_BY_SUBJECT = _table(
    "refs_by_subject",
    ("subject", "part"),
    ("sequence",),
    "subject text; part bigint; sequence bigint; cid_bin blob",
)
TABLES = {
    table.name: table
    for table in (
        PINS,
        PLACEMENTS,
        BY_PEER,
        TTL_QUEUE,
        OPERATIONS,
        STATS,
        EVENTS,
        PARTITION_STATS,
        PERFORMANCE,
        BATCHES,
        REFS,
        BY_OWNER,
        OWNER_DAYS,
        QUEUE,
        CLAIMS,
        PEERS,
        BATCH_ITEMS,
        SUBJECTS,
        REFS_BY_SUBJECT,
    )
}
