"""Durables: make, look at, change, move, remove."""

from __future__ import annotations

from minitoolstream.domain.consumer import Consumer, ConsumerSettings, Start
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_SEQUENCE
from minitoolstream.domain.message import wire_number
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import resolve_start


async def put_consumer(
    core: Core,
    subject: str,
    durable: str,
    settings: ConsumerSettings,
    *,
    start: Start | None = None,
    ack: int | None = None,
    seek: Start | None = None,
) -> tuple[Consumer, bool]:
    """The durable as it is now, and whether it was made by this. An impossible ack or seek is refused before anything
    is done; a seek alone makes no durable: `unknown_durable`."""
    begin = None if start is None else await _position(core, subject, start)
    target = None if seek is None else await _position(core, subject, seek)
    if target is not None:
        await _must_exist(core, subject, target - 1)
        if settings == ConsumerSettings() and start is None and ack is None:
            return await core.deliveries.seek(subject, durable, target), False
    if ack is not None:
        await _must_exist(core, subject, ack)
        await _must_take_positions(core, subject, durable, settings)
    consumer, created = await core.deliveries.put_consumer(subject, durable, settings, begin)
    if ack is not None:
        await core.deliveries.ack(subject, durable, ack)
        consumer = await core.deliveries.get_consumer(subject, durable)
    if target is not None:
        consumer = await core.deliveries.seek(subject, durable, target)
    return consumer, created


async def _position(core: Core, subject: str, start: Start) -> int:
    return max(await resolve_start(core, subject, start), 1)


async def _must_exist(core: Core, subject: str, sequence: int) -> None:
    end = (await core.metadata.get_messages(subject, MAX_SEQUENCE, 1)).watermark
    if sequence > end:
        raise MtsError(
            "beyond_end",
            f"nothing was published up to {sequence} yet; the last sequence is {end}",
            {"watermark": wire_number(end)},
        )


async def _must_take_positions(core: Core, subject: str, durable: str, settings: ConsumerSettings) -> None:
    is_shared, sessions = settings.mode == "shared", 0
    try:
        known = await core.deliveries.get_consumer(subject, durable)
        is_shared, sessions = known.mode == "shared", known.sessions
    except MtsError as error:
        if error.code != "unknown_durable":
            raise
    if is_shared:
        raise MtsError("mode_mismatch", "a shared durable has no position; acknowledge what was leased")
    if sessions:
        raise MtsError("sessions_active", "this durable is read by sessions; acknowledge through them")


async def get_consumer(core: Core, subject: str, durable: str) -> Consumer:
    return await core.deliveries.get_consumer(subject, durable)


async def list_consumers(core: Core, subject: str, after: str, limit: int) -> tuple[list[Consumer], str | None]:
    """In the order of their names, and the name to go on after."""
    found, more = await core.deliveries.list_consumers(subject, after, limit)
    return found, found[-1].durable if more else None


async def delete_consumer(core: Core, subject: str, durable: str) -> None:
    await core.deliveries.delete_consumer(subject, durable)
