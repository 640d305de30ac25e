"""The latest report of a check, as it is kept in the bucket: every host answers the same."""

from __future__ import annotations

from minitoolstream.domain.errors import not_found
from minitoolstream.services.core import Core


async def get_report(core: Core) -> bytes:
    found = await core.audit.get_report()
    if found is None:
        raise not_found("nobody has checked yet: run `mts fsck`")
    name, size = found
    return await core.payloads.get_range(name, 0, size - 1)
