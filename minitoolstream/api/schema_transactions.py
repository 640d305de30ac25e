"""The shapes of transactions on the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from minitoolstream.domain.limits import MAX_TRANSACTION_SECONDS


class TransactionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`timeout`: seconds after which it is aborted, unless it was committed; 60 unless given."""

    timeout: Annotated[float, Meta(ge=1, le=MAX_TRANSACTION_SECONDS)] | None = None


class TransactionReceipt(msgspec.Struct, omit_defaults=True):
    """Where an upload of the transaction is: its last message, of `count`."""

    upload_id: str
    state: str
    sequence: int | str
    partition: int
    offset: int | str
    count: int = 1


class Transaction(msgspec.Struct, omit_defaults=True):
    """`state` is open, committed, aborting or aborted. `rows` counts what it holds of the most it may; a committed
    one has `receipts`, for an hour or as long as there is room for them; an aborted one a `reason`."""

    transaction_id: str
    state: str
    expires_at: float
    rows: int
    reason: str | None = None
    receipts: list[TransactionReceipt] | None = None
