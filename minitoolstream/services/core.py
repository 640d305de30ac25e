"""What every use case is given: the ports, and the few things that live as long as the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from minitoolstream.config import Settings
from minitoolstream.ports import (
    AuditStore,
    BucketStore,
    CatalogStore,
    DeletionStore,
    DeliveryStore,
    EventLetters,
    JournalStore,
    MetadataStore,
    Metrics,
    PayloadStore,
    PeerStores,
    RestoreStore,
    RetentionStore,
    Signer,
    SubjectStore,
    TrackingStore,
    TransactionStore,
)
from minitoolstream.services.peer_health import PeerHealth
from minitoolstream.services.share_work import Queues, SingleFlight

if TYPE_CHECKING:
    from minitoolstream.services.commit_uploads import Committer
    from minitoolstream.services.lane_cache import LaneCache
    from minitoolstream.services.publish_inline import Packer
    from minitoolstream.services.raise_ceiling import Ceiling
    from minitoolstream.services.watch_changes import Watcher

_MEASURE_EVERY = 60.0
_KEEP_PAGES = 0.5  # as long as it takes to wake some thousand readers


class ServerClock:
    """Tarantool's clock, measured now and then: ids that are compared there are made by its time."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._offset_ms = 0
        self._measured_at: float | None = None

    async def now_ms(self) -> int:
        if self._measured_at is None or time.monotonic() - self._measured_at > _MEASURE_EVERY:
            self._offset_ms = await self._metadata.now_ms() - _steady_ms()
            self._measured_at = time.monotonic()
        return _steady_ms() + self._offset_ms


def _steady_ms() -> int:
    """Time that this machine's clock being set does not move."""
    return time.monotonic_ns() // 1_000_000


def utc_now() -> datetime:
    """To the millisecond: what the catalog's engines keep."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


@dataclass(slots=True)
class Core:
    settings: Settings
    metadata: MetadataStore
    deliveries: DeliveryStore
    subjects: SubjectStore
    transactions: TransactionStore
    retention: RetentionStore
    bucket: BucketStore
    journal: JournalStore
    restores: RestoreStore
    deletions: DeletionStore
    audit: AuditStore
    tracking: TrackingStore
    catalog: CatalogStore
    peers: PeerStores
    payloads: PayloadStore
    signer: Signer
    metrics: Metrics
    clock: ServerClock
    committer: Committer
    packer: Packer
    lanes: LaneCache
    watcher: Watcher
    ceiling: Ceiling
    draining: asyncio.Event
    event_letters: EventLetters | None = None
    flights: SingleFlight = field(default_factory=lambda: SingleFlight(_KEEP_PAGES))
    turns: Queues = field(default_factory=Queues)
    wall: Callable[[], datetime] = utc_now
    health: PeerHealth = field(default_factory=PeerHealth)
    answer_bytes: int | None = None
    """Most that a page may take as a function sends it, JSON inside of JSON; a host has no such limit."""

    async def close(self) -> None:
        await self.packer.close()
        await self.lanes.close()
        await self.watcher.close()
        await self.tracking.close()
        await self.catalog.close()
        await self.peers.close()
        await self.metadata.close()
        await self.payloads.close()
        if self.event_letters is not None:
            await self.event_letters.close()
