"""Transactions on Tarantool: one stored function a method."""

from __future__ import annotations

from typing import Any

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.config import Settings
from minitoolstream.domain.transaction import Ack, LeaseAck, PositionAck, Transaction, TransactionReceipt


class TarantoolTransactions:
    """Fulfils `ports.TransactionStore`."""

    def __init__(self, tarantool: Connection, settings: Settings) -> None:
        self._tarantool = tarantool
        self._grace = int(settings["uploads.put_grace"])

    async def begin(self, timeout: float | None) -> Transaction:
        return _transaction(await self._tarantool.call("transaction_begin", timeout))

    async def get(self, transaction_id: str) -> Transaction:
        return _transaction(await self._tarantool.call("transaction_get", transaction_id))

    async def ack(self, transaction_id: str, subject: str, durable: str, ack: Ack) -> None:
        await self._tarantool.call("transaction_ack", transaction_id, subject, durable, _ack(ack))

    async def commit(self, transaction_id: str) -> Transaction:
        return _transaction(await self._tarantool.call("transaction_commit", transaction_id, self._grace))

    async def abort(self, transaction_id: str) -> Transaction:
        return _transaction(await self._tarantool.call("transaction_abort", transaction_id, self._grace))

    async def tick(self, limit: int) -> int:
        return int(await self._tarantool.call("transactions_tick", limit, self._grace))


def _transaction(fields: dict[str, Any]) -> Transaction:
    receipts = fields.get("receipts")
    return Transaction(
        transaction_id=fields["transaction_id"],
        state=fields["state"],
        expires_at_ms=fields["expires_at_ms"],
        rows=fields["rows"],
        reason=fields.get("reason"),
        receipts=None if receipts is None else tuple(TransactionReceipt(*receipt) for receipt in receipts),
        repeated=bool(fields.get("repeated")),
    )


def _ack(ack: Ack) -> dict[str, Any]:
    if isinstance(ack, PositionAck):
        return {"sequence": ack.sequence, "from": ack.read_from, "fence": ack.fence}
    if isinstance(ack, LeaseAck):
        return {"lease_id": ack.lease_id, "sequences": list(ack.sequences)}
    partitions = [
        {"partition": one.partition, "fence": one.fence, "sequence": one.sequence, "from": one.read_from}
        for one in ack.partitions
    ]
    return {"session_id": ack.session_id, "epoch": ack.epoch, "partitions": partitions}
