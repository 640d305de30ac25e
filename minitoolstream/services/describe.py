"""Figures about subjects and the whole, for readers and operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from minitoolstream.domain.message import wire_number
from minitoolstream.services.core import Core


async def latest_sequence(core: Core, subject: str) -> int:
    """0 for a subject without messages."""
    return await core.metadata.latest_sequence(subject)


async def server_time(core: Core) -> int:
    """Unix seconds by Tarantool's clock, asked now: it may have been set since it was last measured."""
    return await core.metadata.now_ms() // 1000


async def describe_status(core: Core) -> dict[str, Any]:
    status = await core.metadata.status()
    return {
        **status,
        "watermark": wire_number(status["watermark"]),
        "retention": await core.retention.status(),
        "journal": await describe_journal(core),
        "recovery": (await core.journal.position()).recovery,
    }


async def describe_journal(core: Core) -> dict[str, Any]:
    lag = await core.journal.journal_lag()
    return {**asdict(lag), "upto": wire_number(lag.upto)}
