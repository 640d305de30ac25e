"""Figures about subjects and the whole, for readers and operators."""

from __future__ import annotations

from typing import Any

from minitoolstream.domain.message import wire_number
from minitoolstream.services.core import Core


async def latest_sequence(core: Core, subject: str) -> int:
    """0 for a subject without messages."""
    return await core.metadata.latest_sequence(subject)


async def list_subjects(core: Core, after: str, limit: int) -> list[dict[str, Any]]:
    """Subjects with their counters, in the order of their names."""
    return await core.metadata.subjects(after, limit)


async def describe_status(core: Core) -> dict[str, Any]:
    status = await core.metadata.status()
    return {**status, "watermark": wire_number(status["watermark"])}
