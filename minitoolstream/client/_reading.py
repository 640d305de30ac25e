"""The reading half of the client for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from minitoolstream.client._download import Download
from minitoolstream.client._read import Reader
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._subscriber import AsyncSubscriber
from minitoolstream.client._subscribing import PREFETCH_BYTES, Ack, Subscribing
from minitoolstream.client._subscription import AsyncSubscription
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Message, Page, Start
from minitoolstream.domain.consumer import Mode


class AsyncReading:
    """Part of `AsyncClient`."""

    _transport: Transport
    _reader: Reader
    _subscriptions: set[AsyncSubscription]

    async def fetch(
        self,
        subject: str,
        *,
        start: Start = 1,
        limit: int = 100,
        partition: int | None = None,
        inline: bool = False,
    ) -> Page:
        """A page of messages from `start` on, with URLs of their payloads; `inline` brings small payloads along.

        Example: `page = await client.fetch("orders", start="first", limit=10)`
        """
        return await self._reader.fetch(subject, start, limit, partition, inline)

    async def messages(
        self, subject: str, *, start: Start = 1, partition: int | None = None, inline: bool = False
    ) -> AsyncGenerator[Message, None]:
        """Every message from `start` to what is the latest when reading begins.

        Example: `async for message in client.messages("orders"): ...`
        """
        async with aclosing(self._pages(subject, start, partition, inline)) as pages:
            async for page in pages:
                for message in page:
                    yield message

    async def read(
        self, subject: str, *, start: Start = 1, limit: int | None = None, partition: int | None = None
    ) -> AsyncGenerator[Message, None]:
        """As `messages`, with the payloads in `data`: packs are fetched whole, some ahead, their CRCs checked.

        Payloads above 16 MiB are left where they are (`data` is None): `download` them.

        Example: `async for message in client.read("orders", start=100): handle(message.data)`
        """
        async with aclosing(self._extents(subject, start, limit, partition)) as extents:
            async for extent in extents:
                for message in extent:
                    yield message

    def subscribe(
        self,
        subject: str,
        *,
        start: Start = "first",
        durable: str | None = None,
        mode: Mode = "ordered",
        session: str | None = None,
        filter: str | Sequence[str] = (),  # noqa: A002
        partition: int | None = None,
        ack: Ack = "auto",
        prefetch: int | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        lease: float | None = None,
        idle: float | None = None,
    ) -> AsyncSubscription:
        """Messages as they come; see `AsyncSubscription` for how to read them, and for acks.

        Without `durable`, from `start` on, and the host keeps nothing. With it, from where its acks got to; it is
        made if there is none, with its position at `start`. An `ordered` durable is read in order, by one reader,
        or by several that share its partitions: each gives a `session`, a name of its own. The messages of a
        `shared` one are leased to any number of readers, for `lease` seconds (the durable's `ack_wait` unless
        given), and as long as they are being handled.

        `filter`: conditions on headers, `"kind=order"` or `"region^=eu-"` (a prefix); all must hold. At most
        `prefetch` messages and `prefetch_bytes` of their payloads are read ahead. With `idle`, the subscription
        ends after so many seconds without a message: with 0, when all that was there has been read.

        Example: `async for delivery in client.subscribe("orders", durable="billing"): ...`
        """
        wanted = Subscribing(
            subject=subject,
            start=start,
            durable=durable,
            mode=mode,
            session=session,
            filter=filter,
            partition=partition,
            ack=ack,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            lease=lease,
            idle=idle,
        )

        def call_soon(function: Callable[[], object]) -> None:
            asyncio.get_running_loop().call_soon(function)

        subscription = AsyncSubscription(
            wanted.intake(self._reader, call_soon),
            auto=wanted.auto,
            ordered=wanted.ordered,
            closed=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    def subscriber(self) -> AsyncSubscriber:
        """Handlers for subjects, run together until a signal; see `AsyncSubscriber`."""
        return AsyncSubscriber(self.subscribe)

    async def get(self, sequence: int, *, inline: bool = False) -> Message:
        """One message; an error `not_found` when there is none with this sequence."""
        return await self._reader.get(sequence, inline)

    async def payload(self, message: Message | int) -> bytes:
        """A message's payload in memory, checked and decompressed; for large ones use `download`."""
        return await self._reader.payload(await self._message(message))

    async def download(
        self,
        message: Message | int,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        progress: ProgressCallback | None = None,
    ) -> Message:
        """Save a payload to a path or an open binary file; size and SHA-256 (when known) are checked.

        To a path, it grows in a `.part` file beside it, which a later call goes on with, and appears under its
        name when it is complete, right, and decompressed. A wrong checksum is an error `checksum_mismatch`.

        Example: `await client.download(42, "film.mp4")`
        """
        found = await self._message(message)
        download = Download(self._transport, found, progress)
        if isinstance(target, str | os.PathLike):
            await download.to_path(Path(target))
        else:
            await download.to_file(target)
        return found

    async def latest(self, subject: str) -> int:
        """The sequence of the subject's last message; 0 when it has none."""
        return int((await self._reader.latest(subject)).latest_sequence)

    async def server_time(self, subject: str) -> datetime:
        """The time where the subject's messages get their `create_at`, to the second: this machine's may differ."""
        return datetime.fromtimestamp((await self._reader.latest(subject)).now, UTC)

    # -- what Client builds on too: many messages at a time, since each step between its threads costs

    def _pages(
        self, subject: str, start: Start, partition: int | None, inline: bool
    ) -> AsyncGenerator[tuple[Message, ...], None]:
        return self._reader.pages(subject, start, partition, inline)

    def _extents(
        self, subject: str, start: Start, limit: int | None, partition: int | None
    ) -> AsyncGenerator[list[Message], None]:
        return self._reader.read(subject, start, limit, partition)

    async def _message(self, given: Message | int) -> Message:
        return given if isinstance(given, Message) else await self._reader.get(given)
