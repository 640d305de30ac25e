"""Delete from the bucket what the trash lists, and strike it off when the store has confirmed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import Doomed
from minitoolstream.services.compare_clocks import clocks_agree
from minitoolstream.services.core import Core
from minitoolstream.services.pace import Pace
from minitoolstream.services.write_journal import finish_journal

_log = logging.getLogger(__name__)
_AT_ONCE = 200
_FAR_BEHIND = 600  # seconds that the oldest has been due
_TRY_AGAIN_AFTER = 60


def _never() -> bool:
    return False


async def delete_trash(core: Core, is_over: Callable[[], bool] = _never) -> int:
    """Empty the trash of what is due, until `is_over`. Returns how many objects are gone. What is due, is so by the
    clock: nothing goes while the clocks differ."""
    deleted = 0
    pace = Pace()
    while not is_over():
        due = await core.metadata.trash_due(_AT_ONCE)
        if not due or not await clocks_agree(core):
            break
        due = await _without_untold(core, due)
        gone = await _delete_some(core, [(one.name, one.multipart) for one in due]) if due else 0
        core.metrics.deleted(gone)
        deleted += gone
        if not await _is_far_behind(core):
            await pace.rest()
    return deleted


async def _without_untold(core: Core, due: list[Doomed]) -> list[Doomed]:
    """A rebuild finds messages where the journal says they are: an object from which they were moved goes after the
    journal was written, and stays for as long as it cannot be."""
    moved = [one.name for one in due if one.moved]
    if not moved:
        return due
    try:
        await finish_journal(core)
    except MtsError as error:
        await must_be_up(core, error)
        _log.warning("objects that were written anew stay for now: %s", error.message)
        await core.metadata.trash_postpone(moved, _TRY_AGAIN_AFTER)
        return [one for one in due if not one.moved]
    return due


async def _is_far_behind(core: Core) -> bool:
    """What is published faster than it can be deleted in half of the time must not pile up."""
    found = await core.retention.status()
    return found.trash_due_at is not None and found.time - found.trash_due_at > _FAR_BEHIND


async def _delete_some(core: Core, objects: Sequence[tuple[str, bool]]) -> int:
    """One object that the store refuses to delete must not hold up the others."""
    try:
        return await delete_objects(core, objects)
    except MtsError as error:
        await must_be_up(core, error)
        if len(objects) == 1:
            _log.warning("%s stays in the trash for now: %s", objects[0][0], error.message)
            await core.metadata.trash_postpone([objects[0][0]], _TRY_AGAIN_AFTER)
            return 0
    middle = len(objects) // 2
    return await _delete_some(core, objects[:middle]) + await _delete_some(core, objects[middle:])


async def must_be_up(core: Core, error: MtsError) -> None:
    """Raises when the error means that a part is down, and not that one object is a problem."""
    if error.retryable:
        await core.metadata.check()
        await core.payloads.check()


async def delete_objects(core: Core, objects: Sequence[tuple[str, bool]]) -> int:
    """Delete objects that have a trash row, and parts of theirs; those the store did not confirm are tried again
    later. All multiparts of a key go: one begun just before a crash is known to the store alone."""
    for name, multipart in objects:
        if multipart:
            for multipart_id in await core.payloads.list_multiparts(name):
                await core.payloads.abort_multipart(name, multipart_id)
    names = [name for name, _ in objects]
    gone = set(await core.payloads.delete_many(names))
    if gone:
        await core.metadata.trash_done([name for name in names if name in gone])
    if len(gone) < len(names):
        await core.metadata.trash_postpone([name for name in names if name not in gone], _TRY_AGAIN_AFTER)
    return len(gone)
