"""Buffered publishing for asyncio: small messages travel together, each with a future of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType

from minitoolstream.client._batch import Frame, publish_frames, to_frame
from minitoolstream.client._buffer import Buffer, BufferLimits
from minitoolstream.client._producers import start_producer
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Item, Result
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.upload import Receipt


class Numbering:
    """The items of one publisher; a named producer's get its epoch and rising seqnos."""

    def __init__(self, content_type: str | None, headers: Mapping[str, str] | None, producer_id: str | None) -> None:
        self._content_type = content_type
        self._headers = dict(headers or {})
        self.producer_id = producer_id
        self._epoch: int | None = None
        self._next = 0

    async def start(self, transport: Transport, subject: str) -> None:
        if self.producer_id is not None:
            session = await start_producer(transport, subject, self.producer_id)
            self._epoch, self._next = session.epoch, session.last_seqno + 1

    def frame(self, data: bytes | str, content_type: str | None, headers: Mapping[str, str] | None) -> Frame:
        return to_frame(
            Item(
                data,
                content_type or self._content_type,
                {**self._headers, **(headers or {})},
                self.producer_id,
                self._next if self.producer_id is not None else None,
                self._epoch,
            )
        )

    def taken(self) -> None:
        """The last frame has its place in the buffer: the next one gets the next seqno."""
        self._next += 1


class AsyncBufferedPublisher:
    """Gathers messages for `linger` seconds or `batch_bytes`, whichever comes first, and sends them as one.

    Messages are stored in the order of the `publish` calls. `publish` waits while too much is buffered.
    Leaving the block sends the rest, and raises when any message was not published.

    Example:
        async with client.buffered("orders", linger=0.01) as orders:
            first = await orders.publish(b"one")
            await orders.publish(b"two")
        print((await first).sequence)
    """

    def __init__(self, transport: Transport, subject: str, limits: BufferLimits, numbering: Numbering) -> None:
        self._transport = transport
        self._subject = check_subject(subject)
        self._numbering = numbering
        self._space = asyncio.Event()
        self._buffer = Buffer(self._send, limits, self._wake, self._space.set)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncBufferedPublisher:
        await self._numbering.start(self._transport, self._subject)
        self._task = asyncio.create_task(self._buffer.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._buffer.close()
        if self._task:
            await self._task
        try:
            self._buffer.raise_failures()
        except MtsError:
            if error is None:
                raise

    async def publish(
        self, data: bytes | str, *, content_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Receipt]:
        """Put a message into the buffer; the future gives its receipt, or raises what was wrong with it."""
        if self._task is None:
            raise MtsError("closed", "use `async with client.buffered(...) as publisher:`")
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        while not self._buffer.offer(self._numbering.frame(data, content_type, headers), future):
            self._space.clear()
            await self._space.wait()
        self._numbering.taken()
        return future

    async def flush(self) -> None:
        """Send what is buffered now; raises when any message since the last flush was not published."""
        await self._buffer.flush()

    def _wake(self) -> None:
        self._buffer.woken()

    async def _send(self, frames: Sequence[Frame]) -> list[Result]:
        return await publish_frames(self._transport, self._subject, frames)
