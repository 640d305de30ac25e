"""Transactions for ordinary code."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from minitoolstream.client._batch import AnyItem
from minitoolstream.client._delivery_sync import Delivery
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._transaction import AsyncTransaction
from minitoolstream.client._types import Result
from minitoolstream.domain.upload import Receipt


class Transaction:
    """What is published and acked in its block becomes visible when the block ends, all at once; an exception, or a
    lost lease or partition among its acks, leaves nothing of it.

    Example:
        with client.transaction() as tx:
            tx.publish("invoices", invoice)
            tx.ack(delivery)
    """

    def __init__(self, thread: LoopThread, transaction: AsyncTransaction) -> None:
        self._thread = thread
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        self._thread.run(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._transaction.__aexit__(kind, error, trace))

    @property
    def transaction_id(self) -> str:
        """Its name at the host; an error `closed` outside of the block."""
        return self._transaction.transaction_id

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """After the commit: where what was published is. Messages that were stored together have one receipt."""
        return self._transaction.receipts

    @same_arguments(AsyncTransaction.publish)
    def publish(self, *args: Any, **options: Any) -> Receipt:
        """As `Client.publish`; the receipt is `stored`: the sequence is given at the end."""
        return self._thread.run(self._transaction.publish(*args, **options))

    @same_arguments(AsyncTransaction.publish_file)
    def publish_file(self, *args: Any, **options: Any) -> Receipt:
        """As `Client.publish_file`, without resuming: an upload ends with its transaction.

        Example: `tx.publish_file("videos", "film.mp4")`
        """
        return self._thread.run(self._transaction.publish_file(*args, **options))

    def publish_batch(self, subject: str, items: Iterable[AnyItem]) -> list[Result]:
        """As `Client.publish_batch`."""
        return self._thread.run(self._transaction.publish_batch(subject, items))

    def ack(self, delivery: Delivery) -> None:
        """Ack a message of a durable, at the end; of an ordered reader, all that it was given before too.

        Raises `position_moved`, `lease_lost` or `partition_lost` when it is not this reader's to ack any more.
        """
        self._thread.run(self._transaction.ack(delivery))
