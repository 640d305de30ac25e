"""The only place where ports meet adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minitoolstream.adapters.aws.calls import AwsCalls
from minitoolstream.adapters.aws.dead_letters import DeadLetterQueue
from minitoolstream.adapters.aws.secrets import ManagedSecrets
from minitoolstream.adapters.catalog.cql import CqlCatalog
from minitoolstream.adapters.catalog.cql_session import CqlPlace
from minitoolstream.adapters.catalog.migrations import Migration, read_migrations
from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.adapters.catalog.sqlite import SqliteCatalog
from minitoolstream.adapters.s3.blocks import S3Blocks
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
from minitoolstream.config import Settings, env_name
from minitoolstream.ports import (
    AuditStore,
    BlockReader,
    BucketStore,
    CatalogStore,
    DeletionStore,
    DeliveryStore,
    EventLetters,
    JournalStore,
    MetadataStore,
    Metrics,
    NoMetrics,
    PayloadStore,
    PeerStores,
    RestoreStore,
    RetentionStore,
    SecretSource,
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
        catalog=open_catalog(settings),
        peers=S3Peers(settings),
        payloads=payloads,
        signer=S3Signer.from_settings(settings),
        metrics=metrics,
        event_letters=_open_event_letters(settings),
    )


def _open_event_letters(settings: Settings) -> EventLetters | None:
    url = settings["aws.dead_letters"]
    return DeadLetterQueue(AwsCalls.from_settings(settings), url) if url else None


def open_secrets(settings: Settings) -> SecretSource | None:
    """Where the rest of the settings is kept, when it is kept elsewhere."""
    secret = settings["aws.secret"]
    return ManagedSecrets(AwsCalls.from_settings(settings), secret) if secret else None


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
    metadata: TarantoolMetadata

    async def close(self) -> None:
        await self.source.close()
        await self.metadata.close()
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
        metadata,
    )


def open_tracking(settings: Settings) -> SqlTracking:
    """The pipeline's table, in SQLite or in a database of the user's."""
    where = settings["pipeline.database"]
    if where == "sqlite":
        file = settings.home / "data" / "pipeline_db.sqlite"
        return SqlTracking(
            Database(lambda: SqliteSession(file, env_name("pipeline.database")), 1),
            SqliteDialect(),
            _ddl("pipeline_ddl_sqlite"),
        )
    place = MysqlPlace.from_url(
        where, settings["pipeline.password"], env_name("pipeline.password"), settings["pipeline.ca_file"]
    )
    return SqlTracking(Database(lambda: MysqlSession(place), _SQL_THREADS), MysqlDialect(), _ddl("pipeline_ddl"))


def open_catalog(settings: Settings) -> CatalogStore:
    """The content catalog, in SQLite or in a cluster of the user's. Nothing is connected before its first use."""
    where = settings["catalog.database"]
    if where == "sqlite":
        file = settings.home / "data" / "catalog.sqlite"
        return SqliteCatalog(
            Database(lambda: SqliteSession(file, env_name("catalog.database")), 1), _catalog_migrations
        )
    hosts, keyspace = CqlPlace.hosts_of(where)
    datacenter = settings["catalog.datacenter"]
    place = CqlPlace(
        hosts,
        keyspace,
        datacenter,
        settings["catalog.home"] or datacenter,
        settings["catalog.replication"],
        settings["catalog.user"],
        settings["catalog.password"],
        settings["catalog.timeout"],
    )
    return CqlCatalog(place, _catalog_migrations)


def _catalog_migrations() -> list[Migration]:
    return read_migrations(bundled("catalog") / "migrations")


def _ddl(name: str) -> Callable[[], str]:
    """Read when it is needed: most processes never use it."""
    return lambda: (bundled("db") / f"{name}.sql").read_text("utf-8")


def open_payloads(settings: Settings) -> PayloadStore:
    """The object store alone, for what needs no metadata. Nothing is connected before its first use."""
    return S3Payloads.from_settings(settings)


def open_blocks(settings: Settings) -> BlockReader:
    """Large objects of it, for ordinary code."""
    return S3Blocks.from_settings(settings)


def open_shard(settings: Settings, url: str) -> ShardRows:
    """A shard's database, for ordinary code."""
    if url.startswith("sqlite:"):
        file = Path(url.removeprefix("sqlite:")).absolute()
        return SqlShardRows(SqliteSession(file, env_name("pipeline.shards")), _ddl("shard_ddl_sqlite"))
    password = settings["pipeline.shard_password"]
    place = MysqlPlace.from_url(url, password, env_name("pipeline.shard_password"), settings["pipeline.ca_file"])
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
    catalog: CatalogStore,
    peers: PeerStores,
    payloads: PayloadStore,
    signer: Signer,
    metrics: Metrics,
    event_letters: EventLetters | None = None,
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
        catalog=catalog,
        peers=peers,
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
        event_letters=event_letters,
    )
