"""Transactions in their shape on the wire."""

from __future__ import annotations

from minitoolstream.api import schema_transactions as schema
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.transaction import Transaction


def transaction(value: Transaction) -> schema.Transaction:
    receipts = [
        schema.TransactionReceipt(
            one.upload_id, value.state, wire_number(one.sequence), one.partition, wire_number(one.offset), one.count
        )
        for one in value.receipts or ()
    ]
    return schema.Transaction(
        value.transaction_id,
        value.state,
        value.expires_at_ms / 1000,
        value.rows,
        value.reason,
        None if value.receipts is None else receipts,
    )
