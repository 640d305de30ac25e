"""Catalogs for tests: a core whose catalog is real (SQLite, or Cassandra) and whose peers are in memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.bootstrap import open_catalog
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.cid import Cid, cid_of
from minitoolstream.domain.errors import not_found
from minitoolstream.domain.placement import Peer
from minitoolstream.ports import CatalogStore, PayloadStore, Signer
from minitoolstream.services.core import Core
from minitoolstream.services.manage_pins import Actor
from tests.core_kit import CoreKit, PlainSigner, core_kit

ALICE, BOB, OPERATOR = Actor("alice"), Actor("bob"), Actor("api", all_owners=True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def catalog_settings(folder: Path, cassandra: Any = None, **more: str) -> Settings:
    """A keyspace or a file that nobody else uses."""
    environ = {"MTS_HOME": str(folder / "home"), **more}
    if cassandra is not None:
        environ["MTS_CATALOG_DATABASE"] = cassandra.url(f"test_{uuid.uuid4().hex[:20]}")
    return load_settings(environ, cwd=folder)


@dataclass
class MemoryPeers:
    """Fulfils `ports.PeerStores`."""

    known: dict[str, Peer] = field(default_factory=dict)
    stores: dict[str, MemoryPayloads] = field(default_factory=dict)

    def add(self, peer_id: str, zone: str = "", weight: float = 1.0) -> MemoryPayloads:
        self.known[peer_id] = Peer(peer_id, zone or peer_id, weight)
        return self.stores.setdefault(peer_id, MemoryPayloads(min_part=1))

    def peers(self) -> Sequence[Peer]:
        return list(self.known.values())

    def payloads(self, peer_id: str) -> PayloadStore:
        if peer_id not in self.known:
            raise not_found(f"there is no peer {peer_id} in catalog.peers")
        return self.stores[peer_id]

    def signer(self, _peer_id: str) -> Signer:
        return PlainSigner()

    async def close(self) -> None: ...


@dataclass
class CatalogKit:
    kit: CoreKit
    store: CatalogStore
    peers: MemoryPeers
    now: datetime = NOON

    @property
    def core(self) -> Core:
        return self.kit.core

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def catalog_kit(folder: Path, *peers: str, settings: Settings | None = None, **changes: Any) -> CatalogKit:
    kit = core_kit(**changes)
    store, known = open_catalog(settings or catalog_settings(folder)), MemoryPeers()
    for peer_id in peers:
        known.add(peer_id)
    found = CatalogKit(kit, store, known)
    kit.core.catalog, kit.core.peers, kit.core.wall = store, known, lambda: found.now
    return found


def cid(number: int) -> Cid:
    return cid_of(str(number).encode())
