"""Figures of the catalog: counters, how pins are spread over prefixes, what peers hold and how they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from minitoolstream.domain.catalog_tables import EVENTS, PARTITION_STATS, STATS
from minitoolstream.domain.cid import Cid, signed_byte
from minitoolstream.ports.catalog import Row
from minitoolstream.services.core import Core
from minitoolstream.services.place_copies import ALL, is_full, peer_rows

_NAMES = ("pins", "copied", "removed", "copied_bytes")
_SLICES = 256


@dataclass(frozen=True, slots=True)
class PeerFigures:
    peer_id: str
    zone: str
    weight: float
    row: Row
    bytes: int
    full: bool


@dataclass(frozen=True, slots=True)
class CatalogFigures:
    """`prefixes`: pins by the first byte of their digests. `smallest` and `largest` are of single prefixes."""

    counts: dict[str, int]
    prefixes: list[int]
    smallest: int
    largest: int
    peers: dict[str, int]


async def read_figures(core: Core) -> CatalogFigures:
    counters = await core.catalog.get_many(STATS, [(ALL, name) for name in _NAMES])
    signed = map(signed_byte, range(_SLICES))
    slices = await asyncio.gather(*(core.catalog.page(PARTITION_STATS, (number,), _SLICES) for number in signed))
    each = [row["pins"] for rows in slices for row in rows if row["pins"]]
    peers = await read_peers(core)
    return CatalogFigures(
        {name: _value(row) for name, row in zip(_NAMES, counters, strict=True)},
        [sum(row["pins"] for row in rows) for rows in slices],
        min(each) if len(each) == _SLICES * _SLICES else 0,
        max(each, default=0),
        {peer.peer_id: peer.bytes for peer in peers},
    )


async def read_peers(core: Core) -> list[PeerFigures]:
    rows, known, now = await peer_rows(core), core.peers.peers(), core.wall()
    held = await core.catalog.get_many(STATS, [(f"peer/{peer.id}", "bytes") for peer in known])
    return [
        PeerFigures(
            peer.id,
            peer.zone,
            peer.weight,
            rows[peer.id],
            _value(counted),
            is_full(rows[peer.id], now),
        )
        for peer, counted in zip(known, held, strict=True)
    ]


async def read_events(core: Core, cid: Cid, limit: int, since: datetime | None = None) -> list[Row]:
    """The oldest first; they are kept for 30 days. `since`: what others did before an owner pinned it, is theirs."""
    after = (since - timedelta(milliseconds=1),) if since is not None else ()
    return await core.catalog.page(EVENTS, (cid.binary,), limit, after=after)


def _value(row: Row | None) -> int:
    return int(row["value"]) if row else 0
