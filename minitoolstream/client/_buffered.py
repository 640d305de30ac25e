"""Buffered publishing for asyncio: small messages travel together, each with a future of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

from minitoolstream.client._buffer import Buffer, BufferLimits
from minitoolstream.client._outlet import Outlet
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt


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

    def __init__(self, outlet: Outlet, limits: BufferLimits) -> None:
        self._outlet = outlet
        self._space = asyncio.Event()
        self._buffer = Buffer(outlet.send, limits, self._wake, self._space.set)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncBufferedPublisher:
        await self._outlet.start()
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
        self,
        data: bytes | str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> asyncio.Future[Receipt]:
        """Put a message into the buffer; the future gives its receipt, or raises what was wrong with it."""
        if self._task is None:
            raise MtsError("closed", "use `async with client.buffered(...) as publisher:`")
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        while not self._buffer.offer(self._outlet.frame(data, content_type, headers, group), future):
            self._space.clear()
            await self._space.wait()
        self._outlet.taken()
        return future

    async def flush(self) -> None:
        """Send what is buffered now; raises when any message since the last flush was not published."""
        await self._buffer.flush()

    def _wake(self) -> None:
        self._buffer.woken()
