"""The only place where ports meet adapters."""

from __future__ import annotations

from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.config import Settings, load_settings
from minitoolstream.ports import MetadataStore, Metrics, NoMetrics, PayloadStore, Signer
from minitoolstream.services.commit_uploads import Committer
from minitoolstream.services.core import Core, ServerClock
from minitoolstream.services.publish_inline import Packer, PackWriter
from minitoolstream.services.watch_changes import Watcher

_current: Core | None = None


async def open_core(settings: Settings, metrics: Metrics | None = None) -> Core:
    """Everything a process needs, joined to the real servers. Nothing is connected before its first use."""
    metrics = metrics or NoMetrics()
    return assemble(
        settings,
        metadata=TarantoolMetadata(settings, metrics),
        payloads=S3Payloads.from_settings(settings, metrics),
        signer=S3Signer.from_settings(settings),
        metrics=metrics,
    )


def assemble(
    settings: Settings, *, metadata: MetadataStore, payloads: PayloadStore, signer: Signer, metrics: Metrics
) -> Core:
    """A core from given parts; tests hand in fakes."""
    clock = ServerClock(metadata)
    return Core(
        settings=settings,
        metadata=metadata,
        payloads=payloads,
        signer=signer,
        metrics=metrics,
        clock=clock,
        committer=Committer(metadata, metrics),
        packer=Packer(PackWriter(metadata, payloads, clock, metrics)),
        watcher=Watcher(metadata),
    )


async def current_core() -> Core:
    """The process's core, opened on first use: what a Lambda container keeps between calls."""
    global _current  # noqa: PLW0603 - a Lambda container has no other place that outlives a call
    if _current is None:
        _current = await open_core(load_settings())
    return _current
