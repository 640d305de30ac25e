"""Many pins in one operation: its ids are kept first, then done chunk by chunk by whoever has its claim."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence

from minitoolstream.domain.catalog_tables import BATCH_ITEMS, BATCHES
from minitoolstream.domain.cid import Cid, read_cid
from minitoolstream.domain.errors import MtsError, not_found
from minitoolstream.domain.pin import Wish, check_wish
from minitoolstream.domain.placement import check_rf
from minitoolstream.ports.catalog import Put, Row
from minitoolstream.services.claims import end_claim, give_up_claim, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.manage_pins import Actor, create_pin, delete_pin, rf_of
from minitoolstream.services.operations import Operation
from minitoolstream.services.place_copies import live_peers

CHUNK = 1000
_WRITE_AT_ONCE = 500
_DO_AT_ONCE = 16
LIFE = 30 * 86_400
"""Seconds that a batch and its results are kept after its last step."""


async def start_batch(
    core: Core, actor: Actor, kind: str, cids: Sequence[Cid], wish: Wish, *, operation_id: str | None = None
) -> Row:
    """Everything is checked and kept before it begins; `run_batches` does it."""
    now = core.wall()
    asked = (kind, [cid.text for cid in cids], wish.rf, wish.tags, wish.zones)
    operation = Operation(core, actor.owner, operation_id, *asked)
    if (answer := await operation.earlier()) is None:
        check_wish(wish, now)
        if kind == "pin":
            check_rf(rf_of(core, wish), await live_peers(core), wish.zones or ())
        answer = await operation.begin()
    if answer is not None:
        return await get_batch(core, actor, answer["batch_id"])
    batch_id = operation.name() or f"{now:%Y%m%d%H%M%S}-{secrets.token_hex(6)}"
    for at in range(0, len(cids), _WRITE_AT_ONCE):
        await core.catalog.write_each(
            [
                Put(BATCH_ITEMS, {**_place(batch_id, number), "cid": cid.text}, life=LIFE)
                for number, cid in enumerate(cids[at : at + _WRITE_AT_ONCE], at)
            ]
        )
    wanted = {"rf": wish.rf, "tags": sorted(wish.tags or ()), "zones": sorted(wish.zones or ())}
    row = {
        "batch_id": batch_id,
        "kind": kind,
        "owner": actor.owner,
        "request": json.dumps({**wanted, "all_owners": actor.all_owners}),
        "total": len(cids),
        "done": 0,
        "failed": 0,
        "state": "running",
        "created_at": now,
        "updated_at": now,
    }
    # Of two that start the same one, both have written the same items by now.
    there = await core.catalog.put_new(BATCHES, row, life=LIFE)
    await operation.done(batch_id=batch_id)
    return row if there is None else there


def _place(batch_id: str, number: int) -> Row:
    return {"batch_id": batch_id, "chunk": number // CHUNK, "position": number}


async def get_batch(core: Core, actor: Actor, batch_id: str) -> Row:
    row = await core.catalog.get(BATCHES, (batch_id,))
    if row is None or not (actor.all_owners or row["owner"] == actor.owner):
        raise not_found(f"there is no batch {batch_id}", batch_id=batch_id)
    return row


async def batch_items(core: Core, actor: Actor, batch_id: str, after: int, limit: int) -> tuple[list[Row], bool]:
    """Results by position, behind one; and whether there are more."""
    row = await get_batch(core, actor, batch_id)
    found: list[Row] = []
    chunk = max(after + 1, 0) // CHUNK
    while chunk * CHUNK < row["total"] and len(found) < limit:
        found += await core.catalog.page(BATCH_ITEMS, (batch_id, chunk), limit - len(found), after=(after,))
        chunk += 1
    return found, bool(found) and found[-1]["position"] < row["total"] - 1


async def run_batches(core: Core) -> int:
    """How many ids were done. One that is killed is gone on with by the next run."""
    done = 0
    cursor: str | None = None
    while True:
        rows, cursor = await core.catalog.walk(BATCHES, cursor, 100)
        for row in rows:
            if row["state"] == "running":
                done += await _run(core, row)
        if cursor is None:
            return done


async def _run(core: Core, row: Row) -> int:
    holder, name = secrets.token_hex(8), f"batch/{row['batch_id']}"
    if not await take_claim(core, name, holder):
        return 0
    done, failed, worked = 0, 0, 0
    try:
        for chunk in range((row["total"] + CHUNK - 1) // CHUNK):
            items = await core.catalog.page(BATCH_ITEMS, (row["batch_id"], chunk), CHUNK)
            waiting = [item for item in items if item["result"] is None]
            await _do(core, row, waiting)
            items = await core.catalog.page(BATCH_ITEMS, (row["batch_id"], chunk), CHUNK) if waiting else items
            worked += len(waiting)
            done += sum(item["result"] is not None for item in items)
            failed += sum(item["result"] == "failed" for item in items)
            if waiting:
                await _progress(core, row, done, failed)
                if not await take_claim(core, name, holder):
                    return worked
        if done == row["total"]:  # its last step may be another's, who died behind it
            await _progress(core, row, done, failed)
        return worked
    finally:
        await (end_claim if done == row["total"] else give_up_claim)(core, name, holder)


async def _progress(core: Core, row: Row, done: int, failed: int) -> None:
    state = "done" if done == row["total"] else "running"
    changed = {"done": done, "failed": failed, "state": state, "updated_at": core.wall()}
    await core.catalog.write([Put(BATCHES, {**row, **changed}, life=LIFE)])  # all of it: columns end one by one


async def _do(core: Core, row: Row, items: Sequence[Row]) -> None:
    request = json.loads(row["request"])
    actor = Actor(row["owner"], all_owners=request["all_owners"])
    tags = frozenset(request["tags"]) or None
    wish = Wish(rf=request["rf"], tags=tags, zones=frozenset(request["zones"]) or None)
    at_once = asyncio.Semaphore(_DO_AT_ONCE)

    async def one(item: Row) -> None:
        async with at_once:
            cid, result, error = read_cid(item["cid"]), "unpinned", None
            try:
                if row["kind"] == "pin":
                    _, created = await create_pin(core, actor, cid, wish)
                    result = "pinned" if created else "was pinned"
                else:
                    await delete_pin(core, actor, cid)
            except MtsError as problem:
                if problem.retryable:
                    raise
                if row["kind"] == "unpin" and problem.code == "not_found":
                    result = "was not pinned"  # also of one whose worker died between its end and this line
                else:
                    result, error = "failed", f"{problem.code}: {problem.message}"
            await core.catalog.write([Put(BATCH_ITEMS, {**item, "result": result, "error": error}, life=LIFE)])

    # The claim is kept until all have ended, also when one fails.
    for ended in await asyncio.gather(*map(one, items), return_exceptions=True):
        if ended is not None:
            raise ended
