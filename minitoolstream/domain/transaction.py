"""Transactions: publishes and acks that become visible together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from minitoolstream.domain.consumer import PartitionAck
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.subject import UPLOAD_ID


class TransactionReceipt(msgspec.Struct, frozen=True, gc=False):
    """What became of one upload of a committed transaction: the place of its last message, and how many it holds."""

    upload_id: str
    sequence: int
    partition: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """`state` is open, committed, aborting (being undone) or aborted; `reason` says why it was aborted. `receipts`
    are known of a committed one, for some time. `repeated`: a commit that was told again what an earlier one did."""

    transaction_id: str
    state: str
    expires_at_ms: int
    rows: int
    reason: str | None = None
    receipts: tuple[TransactionReceipt, ...] | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class PositionAck:
    """Everything up to `sequence`; in a transaction, by who read on from the position `read_from`; if it says so, by
    who read a page with this `fence`."""

    sequence: int
    read_from: int | None = None
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class SessionAck:
    """Partitions, by the session that holds them."""

    session_id: str
    epoch: int
    partitions: Sequence[PartitionAck]


@dataclass(frozen=True, slots=True)
class LeaseAck:
    """Single messages of a lease."""

    lease_id: str
    sequences: Sequence[int]


Ack = PositionAck | SessionAck | LeaseAck


def check_transaction_id(transaction_id: str) -> str:
    if not UPLOAD_ID.match(transaction_id):
        raise bad_request(
            f"{transaction_id[:80]!r} is not a transaction's id (a lower-case UUID of version 7)",
            field="transaction_id",
        )
    return transaction_id
