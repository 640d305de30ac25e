"""A message in a reader's hands, for asyncio."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import ref

from minitoolstream.client._codec import decode
from minitoolstream.client._download import Download
from minitoolstream.client._entries import Entry, Payload
from minitoolstream.client._read import Reader
from minitoolstream.client._stream import payload_blocks
from minitoolstream.client._types import Message

if TYPE_CHECKING:
    from minitoolstream.client._intake import Intake


class BaseDelivery:
    """What both kinds of deliveries tell about their message."""

    __slots__ = ("__weakref__", "_entry", "_intake", "_lane", "_payload")

    def __init__(self, entry: Entry, intake: Intake, *, lane: bool = False) -> None:
        self._entry = entry
        entry.holder = ref(self)
        self._payload = entry.take_payload()
        self._intake = intake
        self._lane = lane

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject} {self.sequence}>"

    def _with_data(self) -> Message:
        """What is here need not be fetched again; what is compressed is, and so is held in memory piece by piece."""
        return self.message if self.message.codec else replace(self.message, data=self._payload.now())

    @property
    def message(self) -> Message:
        """The metadata."""
        return self._entry.message

    @property
    def subject(self) -> str:
        """The subject it is from."""
        return self.message.subject

    @property
    def sequence(self) -> int:
        """Its place in the order."""
        return self.message.sequence

    @property
    def headers(self) -> Mapping[str, str]:
        """The message's headers."""
        return self.message.headers

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included; more than 1 only for shared durables."""
        return self._entry.deliveries


class AsyncDelivery(BaseDelivery):
    """A message of a subscription: its metadata, its payload, and how to acknowledge it.

    Example:
        async for delivery in client.subscribe("orders", durable="billing", ack="manual"):
            print(delivery.sequence, await delivery.data())
            await delivery.ack()
    """

    __slots__ = ()

    async def data(self) -> bytes:
        """The payload in memory, checked and decompressed; it may be here already, fetched ahead."""
        return await payload_data(self._intake.reader, self.message, self._payload)

    async def stream(self) -> AsyncIterator[bytes]:
        """The payload piece by piece, decompressed; size and checksum are checked at its end.

        Example: `async for block in delivery.stream(): ...`
        """
        async with contextlib.aclosing(payload_blocks(self._intake.reader.transport, self._with_data())) as blocks:
            async for block in blocks:
                yield block

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Save the payload to a file, checked and decompressed; see `AsyncClient.download`."""
        await Download(self._intake.reader.transport, self._with_data(), None).to_path(Path(path))

    async def ack(self) -> None:
        """Handled; the host knows when this returns. Of an ordered reader, so is all it was given before.

        Raises `lease_lost` or `partition_lost` when the message is another reader's now, `position_moved` when the
        durable was moved; of a lease, `outcome_unknown` when the host got the ack, its answer was lost, and asked
        again the host does not know the lease any more.
        """
        await self._intake.ack([self._entry], lane=self._lane)

    async def nack(self, delay: float = 0) -> None:
        """Give it back: it is handed out again after `delay` seconds. Only for shared durables."""
        await self._intake.feed.nack([self._entry], delay)


async def payload_data(reader: Reader, message: Message, payload: Payload) -> bytes:
    """The payload as it was published, from wherever it is."""
    arrived = await payload.arrived()
    stored = await reader.stored(message) if arrived is None else arrived
    return await decode(stored, message.codec, message.sequence)
