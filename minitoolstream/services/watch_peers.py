"""Peers that come, go, are lost and come back: what they held or shall hold is put into the reconciler's queue."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import timedelta
from typing import Any

from minitoolstream.domain.catalog_tables import BY_PEER, PEERS, PLACEMENTS
from minitoolstream.domain.cid import read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports.catalog import Put
from minitoolstream.services.claims import give_up_claim, place_of, set_place, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.place_copies import look_at, peer_rows

MEMBERS = "peers"
"""The claim under which peers are watched; its place says who they were and how far the walk is."""
_AT_ONCE = 500
_CHECK_SECONDS = 5.0


async def watch_peers(core: Core) -> None:
    holder = secrets.token_hex(8)
    if not await take_claim(core, MEMBERS, holder):
        return
    try:
        await _look_at_each(core)
        await _follow_changes(core, holder)
    finally:
        await give_up_claim(core, MEMBERS, holder)


async def _look_at_each(core: Core) -> None:
    """One that does not answer is `down`, and after some time `lost`."""
    now, before = core.wall(), await peer_rows(core)

    async def look(peer_id: str) -> Put | None:
        row = before[peer_id]
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await core.peers.payloads(peer_id).check()
            state, reason = "live", None
        except (MtsError, TimeoutError) as error:
            state, reason = "down", (error.message if isinstance(error, MtsError) else "it does not answer")
        if state == "down" and row["state"] in ("down", "lost"):
            lost = row["since"] is not None and now - row["since"] >= timedelta(
                seconds=core.settings["catalog.lost_after"]
            )
            state = "lost" if lost or row["state"] == "lost" else "down"
        if state == row["state"] and (state == "live" or reason == row["reason"]):
            return None
        since = row["since"] if state in ("lost", row["state"]) else now
        return Put(PEERS, {"peer_id": peer_id, "state": state, "since": since, "reason": reason})

    changes = [change for change in await asyncio.gather(*map(look, before)) if change is not None]
    await core.catalog.write(changes)


async def _follow_changes(core: Core, holder: str) -> None:
    """A peer that went needs what it held elsewhere: its own list is walked. One that came, or has another zone or
    weight, gets its share: all placements are. What was walked is remembered page by page."""
    rows = await peer_rows(core)
    there = {peer.id: [peer.zone, peer.weight] for peer in core.peers.peers() if rows[peer.id]["state"] != "lost"}
    text = await place_of(core, MEMBERS)
    place: dict[str, Any] = json.loads(text) if text else {"peers": there, "walks": []}
    before = place.get("peers", {})  # versions before have written names alone
    gone = [peer_id for peer_id in before if peer_id not in there]
    came = [peer_id for peer_id, about in there.items() if before.get(peer_id) != about]
    walks = [*place["walks"], *([peer_id, None] for peer_id in gone), *([["", None]] if came else [])]
    if text is None or gone or came:
        await set_place(core, MEMBERS, holder, json.dumps({"peers": there, "walks": walks}))
    while walks:
        walks = await _walk_on(core, walks)
        if not await take_claim(core, MEMBERS, holder):
            return
        await set_place(core, MEMBERS, holder, json.dumps({"peers": there, "walks": walks}))


async def _walk_on(core: Core, walks: list[Any]) -> list[Any]:
    """One page of the first walk; what is left to walk."""
    (peer_id, place), *rest = walks
    cursor: Any
    if peer_id:
        after = (place[0], bytes.fromhex(place[1])) if place else ()
        rows = await core.catalog.page(BY_PEER, (peer_id,), _AT_ONCE, after=after)
        cursor = [rows[-1]["mh_prefix"], rows[-1]["cid_bin"].hex()] if len(rows) == _AT_ONCE else None
    else:
        rows, cursor = await core.catalog.walk(PLACEMENTS, place, _AT_ONCE)
    now = core.wall()
    await core.catalog.write_each([look_at(read_binary(row["cid_bin"]), now) for row in rows])
    return [[peer_id, cursor], *rest] if cursor is not None else rest
