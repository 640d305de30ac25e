"""What the operator decides after a restore (rule 30): payloads that no row points at become messages again, as far as
they tell what they are, or they go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from minitoolstream.domain.backup import made_at_ms
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import PACK_PREFIX
from minitoolstream.domain.pack import HEAD_PREFIX, head_length, read_head
from minitoolstream.services.compare_bucket import compare_bucket
from minitoolstream.services.core import Core
from minitoolstream.services.delete_again import newest_purges
from minitoolstream.services.progress import Progress, silent

_AT_ONCE = 500

Purges = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Decided:
    """`left`: objects that stay as they are, since nothing can be made of them."""

    messages: int = 0
    objects: int = 0
    uploads_ended: int = 0
    left: list[str] = field(default_factory=list)


async def adopt_orphans(core: Core, progress: Progress = silent) -> Decided:
    """Every orphan of after the journal's end that tells its subject becomes visible as a new message, in the order in
    which they were made. Older ones are what the journal knows to be gone, or what was never committed: no message is
    lost there, and they are left."""
    since = await _must_wait(core) - int(core.settings["packs.grace"] * 1000)
    await core.ceiling.keep()
    decided = Decided()
    orphans = (await compare_bucket(core, progress)).orphans
    purges = await newest_purges(core)
    for name in orphans:
        adopted = await _adopt(core, name, since, purges)
        decided.messages += adopted or 0
        decided.objects += bool(adopted)
        if adopted == 0:
            decided.left.append(name)
        progress(f"adopting: {decided.objects + len(decided.left)} of {len(orphans)} objects")
    await core.restores.end_recovery(adopted=True)
    return decided


async def discard_orphans(core: Core, progress: Progress = silent) -> Decided:
    """Every orphan goes to the trash, and uploads that were open when the snapshot was made end."""
    await _must_wait(core)
    decided = Decided()
    orphans = (await compare_bucket(core, progress)).orphans
    for start in range(0, len(orphans), _AT_ONCE):
        decided.objects += await core.restores.discard_orphans(orphans[start : start + _AT_ONCE])
        progress(f"discarding: {decided.objects} of {len(orphans)} objects")
    decided.uploads_ended = await core.restores.end_recovery(adopted=False)
    return decided


async def _must_wait(core: Core) -> int:
    """The end of the journal that was replayed, in milliseconds; 0 when there was none."""
    position = await core.journal.position()
    if position.recovery != "pending":
        raise MtsError("recovery_conflict", "no restore waits here for a decision")
    return position.journal_at or 0


async def _adopt(core: Core, name: str, since: int, purges: Purges) -> int | None:
    """How many messages it gave; None when it goes. `since`: a pack is committed soon after it was named, or never; a
    payload soon after it was stored."""
    try:
        if name.startswith(PACK_PREFIX):
            made = made_at_ms(name.removeprefix(PACK_PREFIX))
            doomed = {subject: purge for subject, purge in purges.items() if made < (purge["at"] + 1) * 1000}
            return await _adopt_pack(core, name, doomed) if made >= since else 0
        return await _adopt_payload(core, name, since)
    except MtsError as error:
        if error.retryable:
            raise
        return 0  # one that cannot be read, or that its subject does not take, is left as it is


async def _adopt_pack(core: Core, name: str, doomed: Purges) -> int | None:
    """`doomed`: what was purged after the pack was made. It does not come back, and its bytes go."""
    length = head_length(await core.payloads.get_range(name, 0, HEAD_PREFIX - 1))
    described = read_head(await core.payloads.get_range(name, 0, length - 1)) if length else None
    groups = [_plain(group) for group in described or () if group["transaction_id"] is None]
    purge = next((doomed[group["subject"]] for group in groups if group["subject"] in doomed), None)
    kept = [group for group in groups if group["subject"] not in doomed]
    if purge is not None and not kept:
        await core.restores.discard_deleted([name])
        return None
    return await core.restores.adopt_pack(name, kept, purge) if kept else 0


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """Sessions ended with the store that knew them."""
    marks = [{key: value for key, value in mark.items() if key != "epoch"} for mark in group["marks"]]
    return {**group, "marks": marks or None, "own": group["own"] or None}


async def _adopt_payload(core: Core, name: str, since: int) -> int:
    found = await core.payloads.about(name)
    if found is None or found.modified * 1000 < since:
        return 0
    about: dict[str, Any] = {
        "subject": name.split("/")[1],
        "size": found.size,
        "content_type": found.content_type,
        "headers": {},
        "producer_id": None,
    }
    if producer := found.metadata.get("mts-producer"):
        about |= {"producer_id": unquote(producer), "seqno": int(found.metadata["mts-seqno"])}
    return await core.restores.adopt_payload(name, about)
