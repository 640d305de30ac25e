"""Deletions that the law or an owner asks for: at once, for good, and on the record.

Rows go first, in the transaction that writes down what is left to do; then the record is written; then the payloads go.
Whoever finds a deletion unfinished goes on with it: the caller who repeats it, or the reconciler.
"""

from __future__ import annotations

import logging
import time

import msgspec

from minitoolstream.domain.deletion import Deletion, deletion_name
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.keys import DELETION_PREFIX
from minitoolstream.domain.message import wire_number
from minitoolstream.services.core import Core
from minitoolstream.services.delete_trash import delete_objects, must_be_up
from minitoolstream.services.put_once import put_once
from minitoolstream.services.rewrite_pack import rewrite_pack
from minitoolstream.services.write_journal import finish_journal

_log = logging.getLogger(__name__)
_AT_ONCE = 100
_TRIES = 10
_SECONDS = 15.0  # for a caller who waits; API Gateway waits 29


async def delete_message(core: Core, sequence: int, who: str, reason: str) -> Deletion:
    """The message, and whatever shares its payload. Not `done` in the answer: its payload goes soon, ask again."""
    deletion = await core.deletions.delete_message(sequence, who, reason)
    return await finish_deletion(core, deletion, time.monotonic() + _SECONDS)


async def purge_subject(core: Core, subject: str, who: str, reason: str) -> Deletion:
    """All messages that the subject has now. Not `done` in the answer: ask again to go on."""
    deletion = await core.deletions.purge_subject(subject, who, reason)
    return await finish_deletion(core, deletion, time.monotonic() + _SECONDS)


async def finish_deletions(core: Core) -> int:
    """Go on with what nobody has finished; how many were. One that cannot be finished now does not stop the others."""
    finished, problem = 0, None
    for deletion in await core.deletions.open_deletions(_AT_ONCE):
        try:
            ended = await finish_deletion(core, deletion, time.monotonic() + _SECONDS)
            finished += int(ended.done)
        except MtsError as error:
            await must_be_up(core, error)
            _log.warning("deletion %s is left for later: %s", deletion.id, error.message)
            problem = error
    while await core.deletions.trim():
        pass
    if problem is not None and not problem.retryable:
        raise problem
    return finished


async def finish_deletion(core: Core, deletion: Deletion, deadline: float) -> Deletion:
    """Until it is done, or the time is over."""
    if deletion.done:
        return deletion
    await _record(core, deletion)
    stuck = 0
    while True:
        work = await core.deletions.work(deletion.id, _AT_ONCE)
        if work.deletion.done or time.monotonic() > deadline:
            return work.deletion
        if work.trash:
            # The journal knows where neighbours in a pack are now before it loses where they were.
            await finish_journal(core)
        gone = await delete_objects(core, [(name, False) for name in work.trash]) if work.trash else 0
        rewritten = [await rewrite_pack(core, name) for name in work.rewrite]
        is_idle = not work.trash and not work.rewrite  # rows were removed, or struck off
        moved = gone or any(rewritten) or is_idle or not work.deletion.removed
        stuck = 0 if moved else stuck + 1
        if stuck == _TRIES or (stuck and not work.rewrite):
            raise unavailable("the object store has not confirmed yet that the payload is gone; it is tried again")


async def _record(core: Core, deletion: Deletion) -> None:
    """Written once, before any payload goes; never changed, never deleted by us."""
    body = msgspec.json.encode(
        {
            "id": deletion.id,
            "what": {
                "kind": deletion.kind,
                "subject": deletion.subject,
                "sequence": _number(deletion.sequence),
                "upto": _number(deletion.upto),
                "sequences": [wire_number(sequence) for sequence in deletion.sequences],
                "object_name": deletion.object_name,
            },
            "when": deletion.at,
            "who": deletion.who,
            "reason": deletion.reason,
        }
    )
    await put_once(core.payloads, deletion_name(deletion.id), body, content_type="application/json")


def _number(value: int | None) -> int | str | None:
    return None if value is None else wire_number(value)


async def list_deletions(core: Core, after: str, limit: int) -> tuple[list[dict[str, object]], str | None]:
    """The record of deletions, oldest first, behind an id; and the id to go on behind."""
    listed = await core.payloads.list_after(DELETION_PREFIX, deletion_name(after) if after else "", limit + 1)
    bodies = [await core.payloads.get_range(entry.name, 0, entry.size - 1) for entry in listed[:limit]]
    following = listed[limit - 1].name.removeprefix(DELETION_PREFIX) if len(listed) > limit else None
    return [msgspec.json.decode(body, type=dict[str, object]) for body in bodies], following
