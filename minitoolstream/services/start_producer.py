"""A named producer's session: its epoch fences all older ones."""

from __future__ import annotations

from collections.abc import Mapping

from minitoolstream.services.core import Core


async def start_producer(
    core: Core, subject: str, producer_id: str, headers: Mapping[str, str]
) -> tuple[int, int | None]:
    """A new epoch, and the last seqno that is stored, if any. `headers` are shared by the session's messages."""
    return await core.metadata.start_producer(subject, producer_id, headers)
