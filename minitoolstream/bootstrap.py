"""The only place where ports meet adapters."""

from __future__ import annotations

import asyncio

from minitoolstream.adapters.s3.bucket import S3Bucket
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.tarantool.audit import TarantoolAudit
from minitoolstream.adapters.tarantool.deletion import TarantoolDeletions
from minitoolstream.adapters.tarantool.delivery import TarantoolDelivery
from minitoolstream.adapters.tarantool.recovery import TarantoolJournal, TarantoolRestore
from minitoolstream.adapters.tarantool.retention import TarantoolRetention
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.adapters.tarantool.subjects import TarantoolSubjects
from minitoolstream.adapters.tarantool.transactions import TarantoolTransactions
from minitoolstream.config import Settings, load_settings
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
    Signer,
    SubjectStore,
    TransactionStore,
)
from minitoolstream.services.commit_uploads import Committer
from minitoolstream.services.core import Core, ServerClock
from minitoolstream.services.lane_cache import LaneCache
from minitoolstream.services.publish_inline import Packer, PackWriter
from minitoolstream.services.raise_ceiling import Ceiling
from minitoolstream.services.retention_classes import RetentionClasses
from minitoolstream.services.watch_changes import Watcher

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
        payloads=payloads,
        signer=S3Signer.from_settings(settings),
        metrics=metrics,
    )


def open_payloads(settings: Settings) -> PayloadStore:
    """The object store alone, for what needs no metadata. Nothing is connected before its first use."""
    return S3Payloads.from_settings(settings)


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
