"""Sessions: several readers of one ordered durable share its partitions, each has one reader at a time."""

from __future__ import annotations

from minitoolstream.domain.consumer import Session
from minitoolstream.services.core import Core


async def join_session(core: Core, subject: str, durable: str, session_id: str, ttl: int) -> Session:
    """From now on a former holder of the same id is fenced."""
    return await core.deliveries.join_session(subject, durable, session_id, ttl)


async def keep_session(core: Core, subject: str, durable: str, session_id: str, epoch: int) -> Session:
    """A heartbeat; the partitions may be others than before."""
    return await core.deliveries.heartbeat(subject, durable, session_id, epoch)


async def leave_session(core: Core, subject: str, durable: str, session_id: str, epoch: int) -> None:
    """Its partitions go to the others at once."""
    await core.deliveries.leave_session(subject, durable, session_id, epoch)
