"""Buffered publishing for ordinary code, from any number of threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType

from minitoolstream.client._buffer import Buffer, BufferLimits
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._outlet import Outlet
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.upload import Receipt


class BufferedPublisher:
    """Gathers messages for `linger` seconds or `batch_bytes`, whichever comes first, and sends them as one.

    Messages are stored in the order of the `publish` calls. `publish` blocks while too much is buffered.
    Leaving the block sends the rest, and raises when any message was not published. Closing the client before
    that fails what is not sent yet, with the code `closed`.

    Example:
        with client.buffered("orders", linger=0.01) as orders:
            futures = [orders.publish(line) for line in lines]
        print(futures[0].result().sequence)
    """

    def __init__(self, thread: LoopThread, outlet: Outlet, limits: BufferLimits) -> None:
        self._thread = thread
        self._outlet = outlet
        self._changed = threading.Condition()
        self._buffer = Buffer(outlet.send, limits, self._wake, self._tell)
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> BufferedPublisher:
        self._thread.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(MtsError):  # the client is closed: the buffer has failed what it held
            self._thread.run(self._finish())
        try:
            self._buffer.raise_failures()
        except MtsError:
            if error is None:
                raise

    def publish(
        self,
        data: bytes | str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> Future[Receipt]:
        """Put a message into the buffer; the future gives its receipt, or raises what was wrong with it."""
        if self._task is None:
            raise MtsError("closed", "use `with client.buffered(...) as publisher:`")
        future: Future[Receipt] = Future()
        with self._changed:  # which also makes number and place in the buffer one step
            while not self._buffer.offer(self._outlet.frame(data, content_type, headers, group), future):
                self._changed.wait()
            self._outlet.taken()
        return future

    def flush(self) -> None:
        """Send what is buffered now; raises when any message since the last flush was not published."""
        self._thread.run(self._buffer.flush())

    async def _start(self) -> None:
        await self._outlet.start()
        self._task = asyncio.create_task(self._buffer.run())

    async def _finish(self) -> None:
        self._buffer.close()
        if self._task:
            await self._task

    def _wake(self) -> None:
        with contextlib.suppress(MtsError):  # the client is being closed: the buffer fails what it holds
            self._thread.call_soon(self._buffer.woken)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
