"""Acks: what a reader is done with. A position only moves forward by them."""

from __future__ import annotations

from dataclasses import dataclass

from minitoolstream.domain.transaction import Ack, LeaseAck, SessionAck
from minitoolstream.services.core import Core


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The durable's position then, or how many messages of the lease, or the transaction that will ack."""

    position: int | None = None
    messages: int | None = None
    transaction_id: str | None = None


async def acknowledge(
    core: Core, subject: str, durable: str, ack: Ack, transaction_id: str | None = None
) -> Acknowledged:
    """All of it or nothing. In a transaction it is remembered for the commit; what could not be applied now is refused,
    and the transaction goes on."""
    if transaction_id is not None:
        await core.transactions.ack(transaction_id, subject, durable, ack)
        return Acknowledged(transaction_id=transaction_id)
    if isinstance(ack, LeaseAck):
        return Acknowledged(messages=await core.deliveries.ack_leased(subject, durable, ack.lease_id, ack.sequences))
    if isinstance(ack, SessionAck):
        session = ack.session_id, ack.epoch
        return Acknowledged(await core.deliveries.ack_partitions(subject, durable, *session, ack.partitions))
    return Acknowledged(await core.deliveries.ack(subject, durable, ack.sequence, ack.fence))
