"""Rows that follow a pin: where its copies shall be, its place in lists, what is to be done next and what was done."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from minitoolstream.domain.catalog_tables import (
    BY_OWNER,
    BY_PEER,
    EVENTS,
    OWNER_DAYS,
    PARTITION_STATS,
    PEERS,
    PLACEMENTS,
    QUEUE,
    STATS,
    TTL_QUEUE,
)
from minitoolstream.domain.cid import Cid, signed_byte
from minitoolstream.domain.pin import QUEUED, Pin, day_of, ttl_bucket
from minitoolstream.domain.placement import Peer, choose_peers
from minitoolstream.ports.catalog import Change, Delete, Put, Row
from minitoolstream.services.core import Core

SLICES = 16
"""Parts of the reconciler's queue: as many workers can share it."""
_TTL_ROW_BEYOND = 30 * 86_400
MAYBE_COMING = timedelta(seconds=60)
"""So long a change is waited for, of which the queue knows already."""
_LONGEST_LIFE = 5 * 365 * 86_400
"""Engines refuse lives of more than 20 years, and some of those that end after 2038."""
ALL = "all"


def slice_of(cid: Cid) -> int:
    return cid.digest[2] % SLICES


def look_at(cid: Cid, due: datetime) -> Put:
    """The reconciler shall look at it. At an odd millisecond: entries at even ones stand before a change of a pin, and
    of many who change one at once, none takes away what another wrote behind its change."""
    return _entry(cid, soon(_even(due), -0.001))


def look_before(cid: Cid, now: datetime) -> Put:
    """Written before a change of its pin: whoever dies in between leaves work behind, never a pin that nobody looks
    after. `look_again` takes it away."""
    return _entry(cid, _even(_spread(now)))


def look_again(entry: Put, cid: Cid, now: datetime) -> list[Change]:
    """Behind the change, in the place of the entry before it."""
    return [look_at(cid, _spread(now)), Delete(QUEUE, tuple(entry.row[name] for name in QUEUE.key))]


def may_come(entry: Row, now: datetime) -> bool:
    """Whether the change that it stands before may still be made: until then it is met again and again."""
    return bool(entry["due"] == _even(entry["due"]) and now - entry["due"] < MAYBE_COMING)


def _entry(cid: Cid, due: datetime) -> Put:
    return Put(QUEUE, {"slice": slice_of(cid), "due": due, "cid_bin": cid.binary})


def _even(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 2000 * 2000)


def _spread(now: datetime) -> datetime:
    """Somewhere in the second before: two who change the same pin at the same moment have entries of their own."""
    return soon(now, -secrets.randbelow(1000) / 1000)


def expires(cid: Cid, at: datetime, now: datetime) -> Put:
    """The table's own life of 30 days would end the entries of pins that live longer. One whose time is over stands in
    this hour: those of the past are not looked at any more."""
    late = max(at, now)
    row = {"ttl_bucket": ttl_bucket(late), "ttl": at, "cid_bin": cid.binary}
    life = int((late - now).total_seconds()) + _TTL_ROW_BEYOND
    return Put(TTL_QUEUE, row, life=life if life <= _LONGEST_LIFE else 0)


def event(cid: Cid, now: datetime, what: str, actor: str, **details: Any) -> Put:
    text = json.dumps(details) if details else None
    return Put(EVENTS, {"cid_bin": cid.binary, "at": now, "event": what, "actor": actor, "details": text})


def listed(pin: Pin) -> list[Change]:
    day = day_of(pin.created_at)
    return [
        Put(BY_OWNER, {"owner": pin.owner, "day": day, "created_at": pin.created_at, "cid_bin": pin.cid.binary}),
        Put(OWNER_DAYS, {"owner": pin.owner, "day": day}),
    ]


def unlisted(pin: Pin) -> Delete:
    return Delete(BY_OWNER, (pin.owner, day_of(pin.created_at), pin.created_at, pin.cid.binary))


async def peer_rows(core: Core) -> dict[str, Row]:
    """What is known of each peer that is configured."""
    known = [peer.id for peer in core.peers.peers()]
    rows = await core.catalog.get_many(PEERS, [(peer_id,) for peer_id in known])
    unknown = {"state": None, "full_until": None}
    return {peer_id: row or {"peer_id": peer_id, **unknown} for peer_id, row in zip(known, rows, strict=True)}


async def live_peers(core: Core) -> list[Peer]:
    """Those that are configured and not lost; what is full takes no new copies."""
    now, rows = core.wall(), await peer_rows(core)
    return [
        Peer(peer.id, peer.zone, peer.weight, takes_new=not is_full(rows[peer.id], now))
        for peer in core.peers.peers()
        if rows[peer.id]["state"] != "lost"
    ]


def is_full(row: Row, now: datetime) -> bool:
    """Whether a peer takes no new copies for now."""
    return row["full_until"] is not None and row["full_until"] > now


def desired_of(pin: Pin, peers: Sequence[Peer], held: frozenset[str] = frozenset()) -> frozenset[str]:
    return frozenset() if pin.ended else choose_peers(pin.cid.digest, peers, pin.rf, pin.zones, held)


def assigned(
    pin: Pin, before: frozenset[str], desired: frozenset[str], now: datetime, again: frozenset[str] = frozenset()
) -> list[Put]:
    """The placement's wish, peer by peer, so that of two who change it at once none undoes the other's; and rows by
    peer for those that are new to it. What is new to it and what is wanted no more is `in_progress` until the
    reconciler has made the copy, or failed to, or ended it; `again` are those that failed, and are tried once more."""
    key = pin.cid.columns
    fresh, dropped = desired - before, before - desired
    plus = {name: some for name, some in (("desired", fresh), ("in_progress", fresh | dropped | again)) if some}
    minus = {name: some for name, some in (("desired", dropped), ("failed", again)) if some}
    changes = [Put(PLACEMENTS, {**key, "updated_at": now}, plus=plus, minus=minus)]
    for peer in sorted(fresh):
        row = {"peer_id": peer, **key, "state": QUEUED, "assigned_at": now, "last_seen": now, "retry_count": 0}
        changes.append(Put(BY_PEER, row))
    return changes


async def followers(
    core: Core, pin: Pin, before: Pin | None, entry: Put, peers: Sequence[Peer] | None = None
) -> tuple[list[Change], Row]:
    """The rows that follow a pin, and its placement as they make it. `entry`: the reconciler's of before."""
    now = core.wall()
    placement = await core.catalog.get(PLACEMENTS, pin.key) or {}
    had = frozenset(placement.get("desired", ()))
    live = await live_peers(core) if peers is None else peers
    desired = desired_of(pin, live, frozenset(placement.get("actual", ())))
    changes: list[Change] = [*assigned(pin, had, desired, now)] if desired != had else []
    if before is not None and (before.owner, before.created_at) != (pin.owner, pin.created_at):
        changes.append(unlisted(before))
    placement |= {"desired": desired, "in_progress": placement.get("in_progress", frozenset()) | (desired ^ had)}
    return [*changes, *listed(pin), *look_again(entry, pin.cid, now)], placement


async def count(core: Core, cid: Cid, pins: int, size: int = 0) -> None:
    added = {name: amount for name, amount in (("pins", pins), ("bytes", size)) if amount}
    await asyncio.gather(
        core.catalog.add(PARTITION_STATS, (signed_byte(cid.digest[0]), cid.prefix), added),
        *([core.catalog.add(STATS, (ALL, "pins"), {"value": pins})] if pins else []),
    )


def soon(now: datetime, seconds: float) -> datetime:
    return now + timedelta(milliseconds=int(seconds * 1000))
