"""Transactions: begun and ended. Publishes and acks name one and go their usual ways."""

from __future__ import annotations

from minitoolstream.domain.transaction import Transaction
from minitoolstream.services.core import Core


async def begin_transaction(core: Core, timeout: float | None) -> Transaction:
    return await core.transactions.begin(timeout)


async def get_transaction(core: Core, transaction_id: str) -> Transaction:
    return await core.transactions.get(transaction_id)


async def commit_transaction(core: Core, transaction_id: str) -> Transaction:
    """All of it becomes visible, or the transaction is aborted; asked again, it answers the same."""
    committed = await core.transactions.commit(transaction_id)
    if not committed.repeated:
        core.metrics.committed(sum(receipt.count for receipt in committed.receipts or ()))
    return committed


async def abort_transaction(core: Core, transaction_id: str) -> Transaction:
    return await core.transactions.abort(transaction_id)
