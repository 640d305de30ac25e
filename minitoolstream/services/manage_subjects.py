"""Subjects and their settings: make, describe, change, delete, and what is done for them by the clock."""

from __future__ import annotations

from typing import Any

from minitoolstream.domain.subject_settings import Subject
from minitoolstream.services.core import Core
from minitoolstream.services.follow_subjects import note_subject

_CLEARED_AT_ONCE = 500


async def put_subject(core: Core, subject: str, changes: dict[str, Any]) -> tuple[Subject, bool]:
    """The subject as it is now, and whether it was made by this."""
    if changes.get("copies"):
        await note_subject(core, subject, changes["copies"])
    return await core.subjects.put(subject, changes)


async def get_subject(core: Core, subject: str) -> Subject:
    return await core.subjects.get(subject)


async def delete_subject(core: Core, subject: str) -> bool:
    """Gone for everyone when this answers; True when its rows and payloads still have to be cleared away."""
    return await core.subjects.delete(subject)


async def list_subjects(core: Core, prefix: str, after: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Subjects with their counters, in the order of their names, and the name to go on after."""
    found, more = await core.metadata.subjects(after, limit, prefix)
    return found, found[-1]["subject"] if more else None


async def clear_deleted(core: Core) -> int:
    """Clear away some of what deleted subjects left; 0 when nothing is left of them."""
    cleared, more = await core.subjects.clear_deleted(_CLEARED_AT_ONCE)
    return max(cleared, int(more))


async def split_busy(core: Core) -> int:
    """Split partitions that have been written too fast for long enough."""
    return await core.subjects.split_partitions()


async def forget_idle(core: Core) -> int:
    """Forget where producers wrote that have not for long."""
    return await core.subjects.trim_routes()
