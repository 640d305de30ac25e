"""Which transaction a request is about."""

from __future__ import annotations

from minitoolstream.api import parse
from minitoolstream.api.app import Request
from minitoolstream.api.schema_transactions import TransactionRequest
from minitoolstream.domain.transaction import check_transaction_id


def transaction_of(request: Request) -> str:
    """The transaction of the path."""
    return check_transaction_id(request.params["transaction_id"])


def timeout_of(request: Request) -> float | None:
    return parse.decode(request.body or b"{}", TransactionRequest).timeout
