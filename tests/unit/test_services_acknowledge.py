"""Acks of the three kinds, now and in a transaction: each goes to the call that is made for it."""

from __future__ import annotations

import pytest

from minitoolstream.domain.consumer import PartitionAck
from minitoolstream.domain.transaction import Ack, LeaseAck, PositionAck, SessionAck
from minitoolstream.services.acknowledge import Acknowledged, acknowledge
from tests.core_kit import core_kit

POSITION = PositionAck(7, fence=2)
SESSION = SessionAck("reader", 3, [PartitionAck(0, 1, 7)])
LEASE = LeaseAck("lease", [7, 8])


@pytest.mark.parametrize(
    ("ack", "call", "given", "answered"),
    [
        (POSITION, "ack", ("orders", "d", 7, 2), Acknowledged(position=9)),
        (SESSION, "ack_partitions", ("orders", "d", "reader", 3, SESSION.partitions), Acknowledged(position=9)),
        (LEASE, "ack_leased", ("orders", "d", "lease", [7, 8]), Acknowledged(messages=9)),
    ],
)
async def test_an_ack_goes_where_its_kind_belongs(
    ack: Ack, call: str, given: tuple[object, ...], answered: Acknowledged
) -> None:
    kit = core_kit()
    seen: list[tuple[object, ...]] = []
    kit.deliveries.answers[call] = lambda *asked: seen.append(asked) or 9  # type: ignore[func-returns-value]
    assert await acknowledge(kit.core, "orders", "d", ack) == answered
    assert (kit.deliveries.calls, seen) == ([call], [given])


@pytest.mark.parametrize("ack", [POSITION, SESSION, LEASE])
async def test_in_a_transaction_an_ack_waits_for_the_commit(ack: Ack) -> None:
    kit = core_kit()
    seen: list[tuple[object, ...]] = []
    kit.transactions.answers["ack"] = lambda *asked: seen.append(asked)
    assert await acknowledge(kit.core, "orders", "d", ack, "t") == Acknowledged(transaction_id="t")
    assert (kit.deliveries.calls, seen) == ([], [("t", "orders", "d", ack)])
