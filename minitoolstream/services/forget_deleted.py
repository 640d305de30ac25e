"""Messages that were deleted for good hold no contents any more, also when a process deleted them that knows no peers:
the record of deletions is followed behind a cursor."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from minitoolstream.domain.backup import made_at_ms
from minitoolstream.domain.catalog_tables import REFS, REFS_BY_SUBJECT
from minitoolstream.domain.cid import read_binary
from minitoolstream.ports.catalog import Row
from minitoolstream.services.claims import give_up_claim, place_of, set_place, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.delete_messages import list_deletions
from minitoolstream.services.follow_subjects import followed, let_go_of, part_of
from minitoolstream.services.hold_content import let_go

NAME = "deletions"
_PAGE = 100
_MAYBE_COMING = timedelta(seconds=60)
"""So long may the record of an earlier deletion come behind a later one's, and a message be noted that is gone."""


async def forget_deleted(core: Core) -> int:
    """How many messages let go of their contents. Those of a purge go as any that leave the head of their subject."""
    holder = secrets.token_hex(8)
    if await anext(followed(core), None) is None or not await take_claim(core, NAME, holder):
        return 0
    try:
        return await _follow(core, holder)
    finally:
        await give_up_claim(core, NAME, holder)


async def _follow(core: Core, holder: str) -> int:
    # Read first: what is not open by now is on record.
    waiting = await core.deletions.open_deletions(_PAGE)
    gone = await _forget(core, [sequence for one in waiting for sequence in one.sequences], is_over=False)
    newest_ms = int((core.wall() - _MAYBE_COMING).timestamp() * 1000)
    until_ms = min([newest_ms, *(made_at_ms(one.id) for one in waiting)])
    after = await place_of(core, NAME) or ""
    while True:
        records, more = await list_deletions(core, after, _PAGE)
        settled = None
        for record in records:
            deletion_id, what = cast(str, record["id"]), cast(dict[str, Any], record["what"])
            is_over = made_at_ms(deletion_id) < until_ms
            gone += await _forget(core, [int(one) for one in what["sequences"]], is_over=is_over)
            settled = deletion_id if is_over else settled
        if settled and not await set_place(core, NAME, holder, settled):
            return gone
        if more is None or not await take_claim(core, NAME, holder):
            return gone
        after = more


async def _forget(core: Core, sequences: Sequence[int], *, is_over: bool) -> int:
    """A deletion takes messages of several subjects, of which it names one: each is looked for in all."""
    gone = 0
    async for subjects in followed(core):
        for sequence in sequences:
            keys = [(subject, part_of(sequence), sequence) for subject in subjects]
            for entry in await core.catalog.get_many(REFS_BY_SUBJECT, keys):
                gone += entry is not None and await _let_go(core, entry, is_over=is_over)
    return gone


async def _let_go(core: Core, entry: Row, *, is_over: bool) -> bool:
    """Whether it held its content. Its entry, which leads to it, stays as long as it may be noted at this moment."""
    cid, name = read_binary(entry["cid_bin"]), f"message/{entry['sequence']}"
    held = await core.catalog.get(REFS, (cid.binary, name)) is not None
    if is_over:
        await let_go_of(core, entry["subject"], entry)
    elif held:
        async with core.turns.turn(cid):
            await let_go(core, cid, [name])
    return held
