"""Pins, batches, peers and figures of the catalog, from the domain's words to the shapes on the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from minitoolstream.api import schema_catalog as schema
from minitoolstream.domain.pin import PIN_TYPES
from minitoolstream.ports.catalog import Row
from minitoolstream.services.catalog_figures import PeerFigures
from minitoolstream.services.list_pins import PinPage
from minitoolstream.services.manage_pins import PinState

_DELEGATES = ["none: contents come from the service's own stores"]
"""The API wants one to twenty addresses of IPFS nodes to send contents to, and here is no node. Kubo gives up on an
address without a node's id, tries for long to reach one with it, and passes over what is no address."""


def moment(value: datetime) -> str:
    """To the millisecond, so that it can be sent back as a bound."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def pin(state: PinState) -> schema.PinShape:
    one, placement = state.pin, state.placement
    sets = {name: sorted(placement.get(name, ())) for name in ("desired", "actual", "failed", "in_progress")}
    drift, attempts = bool(placement.get("drift_detected")), placement.get("reconcile_count") or 0
    return schema.PinShape(
        cid=one.cid.text,
        owner=one.owner,
        status=state.status,
        rf=one.rf,
        version=one.version or 0,
        created_at=moment(one.created_at),
        updated_at=moment(one.updated_at),
        placement=schema.Placed(**sets, drift=drift, attempts=attempts),
        name=one.name,
        tags=sorted(one.tags),
        metadata=one.own_metadata,
        zones=sorted(one.zones),
        priority=one.priority,
        size=state.size,
        expires_at=moment(one.expires_at) if one.expires_at else None,
        pin_type=PIN_TYPES[one.pin_type],
        failures=[
            schema.CopyFailure(row["peer_id"], row["error_message"], row["retry_count"], moment(row["last_seen"]))
            for row in state.failures
        ],
        again_at=moment(state.again_at) if state.failures and state.again_at else None,
    )


def pins(page: PinPage) -> schema.Pins:
    return schema.Pins([pin(state) for state in page.pins], page.next)


def events(rows: Sequence[Row]) -> schema.PinEvents:
    return schema.PinEvents(
        [
            schema.PinEvent(moment(row["at"]), row["event"], row["actor"] or "", json.loads(row["details"] or "{}"))
            for row in rows
        ]
    )


def batch(row: Row) -> schema.BatchShape:
    return schema.BatchShape(
        row["batch_id"],
        row["kind"],
        row["state"],
        row["total"],
        row["done"] or 0,
        row["failed"] or 0,
        moment(row["created_at"]),
        moment(row["updated_at"]),
    )


def batch_items(rows: Sequence[Row], more: bool) -> schema.BatchItems:
    items = [schema.BatchItem(row["position"], row["cid"], row["result"], row["error"]) for row in rows]
    return schema.BatchItems(items, items[-1].position if more else None)


def peer(one: PeerFigures) -> schema.PeerShape:
    row = one.row
    since = moment(row["since"]) if row.get("since") else None
    state = row["state"] or "unknown"
    return schema.PeerShape(
        one.peer_id,
        one.zone,
        one.weight,
        state,
        one.bytes,
        one.full,
        since,
        row["reason"] if one.full or state in ("down", "lost") else None,
        moment(row["full_until"]) if one.full else None,
    )


def ipfs_status(state: PinState) -> schema.IpfsPinStatus:
    one = state.pin
    return schema.IpfsPinStatus(
        one.cid.text,
        state.status,
        moment(one.created_at),
        schema.IpfsPin(one.cid.text, one.name, None, one.own_metadata or None),
        _DELEGATES,
        {
            "copies": f"{len(state.placement.get('actual', ()))} of {one.rf}",
            **{f"failed at {row['peer_id']}": row["error_message"] for row in state.failures},
        },
    )


def ipfs_pins(page: PinPage) -> schema.IpfsPins:
    results = [ipfs_status(state) for state in page.pins]
    return schema.IpfsPins(len(results) + bool(page.next), results)
