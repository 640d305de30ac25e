"""The only place where ports meet adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minitoolstream.adapters.s3.bucket import S3Bucket
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.sql.database import Database
from minitoolstream.adapters.sql.mysql import MysqlDialect, MysqlPlace, MysqlSession
from minitoolstream.adapters.sql.shard_rows import SqlShardRows
from minitoolstream.adapters.sql.sqlite import SqliteDialect, SqliteSession
from minitoolstream.adapters.sql.tracking import SqlTracking
from minitoolstream.adapters.tarantool.audit import TarantoolAudit
from minitoolstream.adapters.tarantool.deletion import TarantoolDeletions
from minitoolstream.adapters.tarantool.delivery import TarantoolDelivery
from minitoolstream.adapters.tarantool.legacy import LegacyTarantool, TarantoolImport
from minitoolstream.adapters.tarantool.recovery import TarantoolJournal, TarantoolRestore
from minitoolstream.adapters.tarantool.retention import TarantoolRetention
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.adapters.tarantool.subjects import TarantoolSubjects
from minitoolstream.adapters.tarantool.transactions import TarantoolTransactions
from minitoolstream.bundle import bundled
from minitoolstream.config import Settings, env_name, load_settings
from minitoolstream.ports import (
    AuditStore,
    BucketStore,
    DeletionStore,
    DeliveryStore,
    JournalStore,
    MetadataStore,
    Metrics,
    NoMetrics,
    PayloadStore,
    RestoreStore,
    RetentionStore,
    ShardRows,
    Signer,
    SubjectStore,
    TrackingStore,
    TransactionStore,
)
from minitoolstream.ports.legacy import ImportStore, LegacySource
from minitoolstream.services.commit_uploads import Committer
from minitoolstream.services.core import Core, ServerClock
from minitoolstream.services.lane_cache import LaneCache
from minitoolstream.services.publish_inline import Packer, PackWriter
from minitoolstream.services.raise_ceiling import Ceiling
from minitoolstream.services.retention_classes import RetentionClasses
from minitoolstream.services.watch_changes import Watcher

_SQL_THREADS = 8  # each with a connection: some more than calls to one database gain by
_current: Core | None = None


async def open_core(settings: Settings, metrics: Metrics | None = None) -> Core:
    """Everything a process needs, joined to the real servers. Nothing is connected before its first use."""
    metrics = metrics or NoMetrics()
    metadata = TarantoolMetadata(settings, metrics)
    payloads = S3Payloads.from_settings(settings, metrics)
    return assemble(
        settings,
        metadata=metadata,
        deliveries=TarantoolDelivery(metadata.connection),
        subjects=TarantoolSubjects(metadata.connection, settings),
        transactions=TarantoolTransactions(metadata.connection, settings),
        retention=TarantoolRetention(metadata.connection),
        bucket=S3Bucket(payloads.requests),
        journal=TarantoolJournal(metadata.connection),
        restores=TarantoolRestore(metadata.connection, settings),
        deletions=TarantoolDeletions(metadata.connection, settings),
        audit=TarantoolAudit(metadata.connection, settings),
        tracking=open_tracking(settings),
        payloads=payloads,
        signer=S3Signer.from_settings(settings),
        metrics=metrics,
    )


@dataclass(frozen=True, slots=True)
class LegacyPlace:
    """Where an installation of the first server is; the bucket's None values are ours."""

    tarantool: str
    user: str
    password: str
    bucket: str
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None


@dataclass(frozen=True, slots=True)
class ImportParts:
    """`payloads` is None when they are in our bucket already."""

    core: Core
    store: ImportStore
    source: LegacySource
    payloads: PayloadStore | None

    async def close(self) -> None:
        await self.source.close()
        if self.payloads is not None:
            await self.payloads.close()
        await self.core.close()


async def open_import(settings: Settings, place: LegacyPlace) -> ImportParts:
    core = await open_core(settings)
    metadata = TarantoolMetadata(settings, NoMetrics())
    changes = {
        "minio__bucket": place.bucket,
        "minio__endpoint": place.endpoint or settings["minio.endpoint"],
        "minio__access_key": place.access_key or settings.secret("minio.access_key"),
        "minio__secret_key": place.secret_key or settings.secret("minio.secret_key"),
    }
    there = settings.with_values(**changes)
    is_ours = (there["minio.bucket"], there["minio.endpoint"]) == (settings["minio.bucket"], settings["minio.endpoint"])
    return ImportParts(
        core,
        TarantoolImport(metadata.connection),
        LegacyTarantool(place.tarantool, place.user, place.password, settings["tarantool.timeout"]),
        None if is_ours else S3Payloads.from_settings(there),
    )


def open_tracking(settings: Settings) -> SqlTracking:
    """The pipeline's table, in SQLite or in a database of the user's."""
    where = settings["pipeline.database"]
    if where == "sqlite":
        file = settings.home / "data" / "pipeline_db.sqlite"
        return SqlTracking(Database(lambda: SqliteSession(file), 1), SqliteDialect(), _ddl("pipeline_ddl_sqlite"))
    place = MysqlPlace.from_url(where, settings["pipeline.password"], env_name("pipeline.password"))
    return SqlTracking(Database(lambda: MysqlSession(place), _SQL_THREADS), MysqlDialect(), _ddl("pipeline_ddl"))


def _ddl(name: str) -> Callable[[], str]:
    """Read when it is needed: most processes never use it."""
    return lambda: (bundled("db") / f"{name}.sql").read_text("utf-8")


def open_payloads(settings: Settings) -> PayloadStore:
    """The object store alone, for what needs no metadata. Nothing is connected before its first use."""
    return S3Payloads.from_settings(settings)


def open_shard(settings: Settings, url: str) -> ShardRows:
    """A shard's database, for ordinary code."""
    if url.startswith("sqlite:"):
        file = Path(url.removeprefix("sqlite:")).absolute()
        return SqlShardRows(SqliteSession(file), _ddl("shard_ddl_sqlite"))
    password = settings["pipeline.shard_password"]
    place = MysqlPlace.from_url(url, password, env_name("pipeline.shard_password"))
    return SqlShardRows(MysqlSession(place), _ddl("shard_ddl"))


def assemble(
    settings: Settings,
    *,
    metadata: MetadataStore,
    deliveries: DeliveryStore,
    subjects: SubjectStore,
    transactions: TransactionStore,
    retention: RetentionStore,
    bucket: BucketStore,
    journal: JournalStore,
    restores: RestoreStore,
    deletions: DeletionStore,
    audit: AuditStore,
    tracking: TrackingStore,
    payloads: PayloadStore,
    signer: Signer,
    metrics: Metrics,
) -> Core:
    """A core from given parts; tests hand in fakes."""
    clock = ServerClock(metadata)
    draining = asyncio.Event()
    lanes = LaneCache(subjects.lanes)
    classes = RetentionClasses(f"{settings['ttl.default']:.0f}" if settings["ttl.enabled"] else "")
    return Core(
        settings=settings,
        metadata=metadata,
        deliveries=deliveries,
        subjects=subjects,
        transactions=transactions,
        retention=retention,
        bucket=bucket,
        journal=journal,
        restores=restores,
        deletions=deletions,
        audit=audit,
        tracking=tracking,
        payloads=payloads,
        signer=signer,
        metrics=metrics,
        clock=clock,
        committer=Committer(metadata, metrics),
        packer=Packer(PackWriter(metadata, payloads, clock, metrics, lanes, retention=classes)),
        lanes=lanes,
        watcher=Watcher(metadata, draining),
        ceiling=Ceiling(journal, payloads),
        draining=draining,
    )


async def current_core() -> Core:
    """The process's core, opened on first use: what a Lambda container keeps between calls."""
    global _current  # noqa: PLW0603 - a Lambda container has no other place that outlives a call
    if _current is None:
        _current = await open_core(load_settings())
        await _current.ceiling.keep_if_possible()
    return _current
