"""A message in a reader's hands, for ordinary code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from minitoolstream.client._delivery import BaseDelivery, payload_data
from minitoolstream.client._download import Download
from minitoolstream.client._entries import Entry
from minitoolstream.client._intake import Intake
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._stream import payload_blocks


class Delivery(BaseDelivery):
    """A message of a subscription: its metadata, its payload, and how to acknowledge it.

    Example:
        for delivery in client.subscribe("orders", durable="billing", ack="manual"):
            print(delivery.sequence, delivery.data())
            delivery.ack()
    """

    __slots__ = ("_thread",)

    def __init__(self, thread: LoopThread, entry: Entry, intake: Intake, *, lane: bool = False) -> None:
        super().__init__(entry, intake, lane=lane)
        self._thread = thread

    def data(self) -> bytes:
        """The payload in memory, checked and decompressed; it may be here already, fetched ahead."""
        here = self._payload.now()
        if here is not None and not self.message.codec:
            return here
        return self._thread.run(payload_data(self._intake.reader, self.message, self._payload))

    def stream(self) -> Iterator[bytes]:
        """The payload piece by piece, decompressed; size and checksum are checked at its end.

        Example: `for block in delivery.stream(): ...`
        """
        return self._thread.iterate(payload_blocks(self._intake.reader.transport, self._with_data()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the payload to a file, checked and decompressed; see `AsyncClient.download`."""
        download = Download(self._intake.reader.transport, self._with_data(), None)
        self._thread.run(download.to_path(Path(path)))

    def ack(self) -> None:
        """Handled; the host knows when this returns. Of an ordered reader, so is all it was given before.

        Raises as `AsyncDelivery.ack`.
        """
        self._thread.run(self._intake.ack([self._entry], lane=self._lane))

    def nack(self, delay: float = 0) -> None:
        """Give it back: it is handed out again after `delay` seconds. Only for shared durables."""
        self._thread.run(self._intake.feed.nack([self._entry], delay))
