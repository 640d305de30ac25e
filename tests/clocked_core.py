"""Cores on a real Tarantool whose clock a test sets, and a store in memory with a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitoolstream.adapters.catalog.peers import S3Peers
from minitoolstream.adapters.memory.bucket import MemoryBucket
from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.memory.tracking import MemoryTracking
from minitoolstream.adapters.tarantool.audit import TarantoolAudit
from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.adapters.tarantool.deletion import TarantoolDeletions
from minitoolstream.adapters.tarantool.delivery import TarantoolDelivery
from minitoolstream.adapters.tarantool.recovery import TarantoolJournal, TarantoolRestore
from minitoolstream.adapters.tarantool.retention import TarantoolRetention
from minitoolstream.adapters.tarantool.store import TarantoolMetadata
from minitoolstream.adapters.tarantool.subjects import TarantoolSubjects
from minitoolstream.adapters.tarantool.transactions import TarantoolTransactions
from minitoolstream.bootstrap import assemble, open_catalog
from minitoolstream.config import Settings
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.ports import NoMetrics, PayloadStore
from minitoolstream.services.core import Core
from minitoolstream.services.publish_inline import publish_inline
from tests.clocked_tarantool import ClockedMetadata, settings_for, start_clocked_tarantool
from tests.core_kit import PlainSigner, measure_again
from tests.fuse import Fuse


def core_on(settings: Settings, metadata: TarantoolMetadata, payloads: PayloadStore, fuse: Fuse | None = None) -> Core:
    """A process of ours; with a fuse, one that is killed. What it hears of lanes in the background is no step."""
    connection = metadata.connection
    ports: dict[str, Any] = {
        "metadata": metadata,
        "transactions": TarantoolTransactions(connection, settings),
        "retention": TarantoolRetention(connection),
        "journal": TarantoolJournal(connection),
        "restores": TarantoolRestore(connection, settings),
        "deletions": TarantoolDeletions(connection, settings),
        "audit": TarantoolAudit(connection, settings),
        "payloads": payloads,
    }
    if fuse is not None:
        ports = {title: fuse.before(port, title) for title, port in ports.items()}
    return assemble(
        settings,
        deliveries=TarantoolDelivery(connection),
        subjects=TarantoolSubjects(connection, settings),
        bucket=MemoryBucket(),
        tracking=MemoryTracking(),
        catalog=open_catalog(settings),
        peers=S3Peers(settings),
        signer=PlainSigner(),
        metrics=NoMetrics(),
        **ports,
    )


class Clocked:
    """A core, the server below it, and both clocks."""

    def __init__(self, folder: Path, extra: Mapping[str, str] | None = None) -> None:
        self.server = start_clocked_tarantool(folder)
        self.settings = settings_for(self.server, folder, {"MTS_TRASH_GRACE": "600s", **(extra or {})})
        self.metadata = ClockedMetadata(self.settings)
        self.payloads = MemoryPayloads(min_part=1)
        self.hand = Connection(self.server.address, "mts", self.server.password, 5.0, NoMetrics())
        self.core: Core = core_on(self.settings, self.metadata, self.payloads)

    async def publish(self, count: int) -> None:
        measure_again(self.core)
        for _ in range(count):
            assert (await publish_inline(self.core, InlineMessage("s", b"x", "text/plain"))).receipt is not None

    async def pass_time(self, seconds: float) -> None:
        await self.metadata.advance(seconds)
        self.payloads.clock.advance(seconds)
        measure_again(self.core)

    async def set_clock(self, seconds: float) -> None:
        """Of Tarantool's machine alone."""
        await self.hand.call("clock_set", seconds)
        measure_again(self.core)

    async def rows(self) -> int:
        return int((await self.metadata.status())["rows"])

    async def close(self) -> None:
        await self.core.close()
        await self.hand.close()
        self.server.stop()
