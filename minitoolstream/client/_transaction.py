"""Transactions for asyncio: publishes and acks that become visible together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from minitoolstream.api.schema_transactions import Transaction, TransactionReceipt
from minitoolstream.client._batch import AnyItem, publish_items, to_item
from minitoolstream.client._codec import encode
from minitoolstream.client._consumer_calls import ConsumerCalls
from minitoolstream.client._delivery import BaseDelivery
from minitoolstream.client._entries import Entry, Stage
from minitoolstream.client._files import guess_content_type, publish_path
from minitoolstream.client._inline import publish_bytes
from minitoolstream.client._intake import Intake
from minitoolstream.client._source import FileSource
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Result, content_type_for, to_bytes
from minitoolstream.client._upload_calls import JSON, Announcement
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.subject_settings import check_codec
from minitoolstream.domain.upload import Receipt, State


class AsyncTransaction:
    """What is published and acked in its block becomes visible when the block ends, all at once; an exception, or a
    lost lease or partition among its acks, leaves nothing of it.

    Example:
        async with client.transaction() as tx:
            await tx.publish("invoices", invoice)
            await tx.ack(delivery)
    """

    def __init__(self, transport: Transport, timeout: float | None) -> None:
        self._transport = transport
        self._timeout = timeout
        self._id: str | None = None
        self._acked: list[tuple[Entry, Intake]] = []
        self._receipts: tuple[Receipt, ...] = ()

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """After the commit: where what was published is. Messages that were stored together have one receipt."""
        return self._receipts

    @property
    def transaction_id(self) -> str:
        """Its name at the host; an error `closed` outside of the block."""
        if self._id is None:
            raise MtsError("closed", "a transaction is used in its block: `with client.transaction() as tx:`")
        return self._id

    async def __aenter__(self) -> AsyncTransaction:
        body = {} if self._timeout is None else {"timeout": self._timeout}
        # Repeatable: one that nobody uses ends by its timeout and leaves nothing.
        begun = await self._transport.call(
            "POST", "/v1/transactions", Transaction, body=msgspec.json.encode(body), headers=JSON
        )
        self._id = begun.transaction_id
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        path = f"/v1/transactions/{self.transaction_id}"
        try:
            if kind is None:
                ended = await self._transport.call("POST", f"{path}/commit", Transaction, headers=JSON, timeout=60)
                self._receipts = tuple(map(_receipt, ended.receipts or ()))
                for entry, intake in self._acked:
                    intake.feed.acked(entry)
                self._acked = []
            else:
                with contextlib.suppress(MtsError):  # it ends by its timeout, too
                    await self._transport.send("POST", f"{path}/abort", headers=JSON)
        finally:
            self._id = None
            for entry, intake in self._acked:
                await intake.undone(entry)

    async def publish(
        self,
        subject: str,
        data: bytes | str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
        codec: str | None = None,
        producer_id: str | None = None,
        seqno: int | None = None,
        epoch: int | None = None,
    ) -> Receipt:
        """As `AsyncClient.publish`; the receipt is `stored`: the sequence is given at the end."""
        announced = Announcement(
            content_type_for(data, content_type),
            dict(headers or {}),
            producer_id,
            seqno,
            epoch,
            group,
            check_codec(codec),
            self.transaction_id,
        )
        stored = await encode(to_bytes(data), announced.codec)
        return await publish_bytes(self._transport, subject, stored, announced, None)

    async def publish_file(
        self,
        subject: str,
        path: str | os.PathLike[str],
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
        codec: str | None = None,
        producer_id: str | None = None,
        seqno: int | None = None,
        epoch: int | None = None,
        progress: ProgressCallback | None = None,
        concurrency: int = 4,
    ) -> Receipt:
        """As `AsyncClient.publish_file`, without resuming: an upload ends with its transaction.

        Example: `await tx.publish_file("videos", "film.mp4")`
        """
        original = FileSource(Path(path))
        announced = Announcement(
            content_type or guess_content_type(original.path),
            dict(headers or {}),
            producer_id,
            seqno,
            epoch,
            group,
            check_codec(codec),
            self.transaction_id,
        )
        return await publish_path(
            self._transport, subject, original, announced, concurrency=concurrency, progress=progress
        )

    async def publish_batch(self, subject: str, items: Iterable[AnyItem]) -> list[Result]:
        """As `AsyncClient.publish_batch`."""
        return await publish_items(self._transport, subject, map(to_item, items), self.transaction_id)

    async def ack(self, delivery: BaseDelivery) -> None:
        """Ack a message of a durable, at the end; of an ordered reader, all that it was given before too.

        Raises `position_moved`, `lease_lost` or `partition_lost` when it is not this reader's to ack any more.
        """
        entry, intake = delivery._entry, delivery._intake
        if delivery._lane:
            intake.feed.check_alone(entry)
        calls = ConsumerCalls(self._transport, entry.message.subject)
        await intake.flush()  # what was done before would otherwise move the position while the transaction runs
        await calls.ack(intake.feed.durable, await intake.feed.ack_body(entry), self.transaction_id)
        if entry.loss:  # while the ack was on its way
            raise entry.loss
        entry.stage = Stage.IN_TRANSACTION
        self._acked.append((entry, intake))


def _receipt(answer: TransactionReceipt) -> Receipt:
    return Receipt(
        upload_id=answer.upload_id,
        state=State(answer.state),
        sequence=int(answer.sequence),
        partition=answer.partition,
        offset=int(answer.offset),
    )
