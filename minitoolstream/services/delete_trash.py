"""Delete from the bucket what the trash lists, and strike it off when the store has confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.services.core import Core

_AT_ONCE = 500
_TRY_AGAIN_AFTER = 60


async def delete_trash(core: Core) -> int:
    """Empty the trash of what is due. Returns how many objects are gone."""
    deleted = 0
    while due := await core.metadata.trash_due(_AT_ONCE):
        deleted += await delete_objects(core, due)
    return deleted


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
