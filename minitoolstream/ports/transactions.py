"""Publishes and acks that become visible together."""

from __future__ import annotations

from typing import Protocol

from minitoolstream.domain.transaction import Ack, Transaction


class TransactionStore(Protocol):
    """Transactions. An unknown one is an MtsError `unknown_transaction`, one that has ended `transaction_ended`."""

    async def begin(self, timeout: float | None) -> Transaction: ...

    async def get(self, transaction_id: str) -> Transaction: ...

    async def ack(self, transaction_id: str, subject: str, durable: str, ack: Ack) -> None:
        """Applied by the commit; refused now when it could not be applied now."""

    async def commit(self, transaction_id: str) -> Transaction:
        """All of it, in one write. `transaction_conflict`: it was aborted, or uploads are open (`state` tells)."""

    async def abort(self, transaction_id: str) -> Transaction: ...

    async def tick(self, limit: int) -> int:
        """End what is out of time, forget old outcomes; how many."""
