"""Work sharing: messages are leased to one worker at a time, and come back when it neither acks nor extends."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from minitoolstream.domain.consumer import Lease
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_WAIT_SECONDS
from minitoolstream.domain.message import Message
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import deliver
from minitoolstream.services.watch_changes import durable_key, subject_key, woken

_log = logging.getLogger(__name__)
_SEARCH_SECONDS = 5.0
_STORE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LeasedMessages:
    lease_id: str | None
    expires_at_ms: int
    messages: list[Message]


async def lease_messages(
    core: Core,
    subject: str,
    durable: str,
    limit: int,
    *,
    seconds: float | None = None,
    wait: float = 0.0,
    inline: bool = False,
) -> LeasedMessages:
    """Up to `limit` messages for `seconds`; none when none came within `wait` seconds."""
    if wait > 0:
        lease = await _wait_for_lease(core, subject, durable, limit, seconds=seconds, wait=min(wait, MAX_WAIT_SECONDS))
    else:
        lease = await _lease_now(core, subject, durable, limit, seconds)
    messages = await _deliver(core, lease, inline=inline)
    _set_deliveries(messages, lease)
    core.metrics.delivered(len(messages))
    return LeasedMessages(lease.lease_id if messages else None, lease.expires_at_ms, messages)


async def _deliver(core: Core, lease: Lease, *, inline: bool) -> list[Message]:
    """Leased, they count as tried: without the object store their URLs must do, an error would use up their tries."""
    if inline:
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                return await deliver(core, lease.extents, inline=True)
        except (MtsError, TimeoutError) as error:
            if isinstance(error, MtsError) and not error.retryable:
                raise
            _log.warning("leased without payloads: %s", error or "the object store is slow")
    return await deliver(core, lease.extents, inline=False)


async def _lease_now(core: Core, subject: str, durable: str, limit: int, seconds: float | None) -> Lease:
    """One call looks at so many messages; while there are more to look at, an empty answer would not be true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SEARCH_SECONDS
    while True:
        lease = await core.deliveries.lease(subject, durable, limit, seconds)
        if lease.extents or lease.due_in_ms != 0 or core.draining.is_set() or loop.time() >= deadline:
            return lease


async def _wait_for_lease(
    core: Core, subject: str, durable: str, limit: int, *, seconds: float | None, wait: float
) -> Lease:
    """One worker of a durable asks, the others stand behind it: a message wakes one of them, not all."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    lease = NOTHING
    try:
        async with asyncio.timeout_at(deadline) as limit_of_turn, core.turns.turn((subject, durable)):
            limit_of_turn.reschedule(None)
            if core.draining.is_set():
                return lease
            with core.watcher.watch(subject_key(subject), durable_key(subject, durable)) as changed:
                while True:
                    changed.clear()
                    lease = await core.deliveries.lease(subject, durable, limit, seconds)
                    if lease.extents or core.draining.is_set() or loop.time() >= deadline:
                        return lease
                    due = deadline if lease.due_in_ms is None else loop.time() + lease.due_in_ms / 1000
                    if not await woken(changed, min(due, deadline)) and due >= deadline:
                        return lease
    except TimeoutError:
        return lease


NOTHING = Lease(None, (), (), 0, None)


def _set_deliveries(messages: Sequence[Message], lease: Lease) -> None:
    runs = sorted(lease.tries)
    for message in messages:
        first, last, deliveries = runs[bisect_right(runs, int(message.sequence), key=itemgetter(0)) - 1]
        assert first <= int(message.sequence) <= last
        message.deliveries = deliveries


async def extend_lease(
    core: Core, subject: str, durable: str, lease_id: str, *, seconds: float, sequences: Sequence[int] | None
) -> int:
    """Until when, in milliseconds."""
    return await core.deliveries.extend_lease(subject, durable, lease_id, seconds, sequences)


async def give_back(
    core: Core,
    subject: str,
    durable: str,
    lease_id: str,
    sequences: Sequence[int],
    *,
    delay: float,
    untried: bool = False,
) -> tuple[int, int]:
    """How many come again after `delay` seconds, and how many became dead letters instead. What was `untried` never
    does: it was handed out, and nobody has looked at it."""
    return await core.deliveries.nack(subject, durable, lease_id, sequences, delay, untried=untried)
