"""One HTTP/1.1 connection: a request at a time, its answer parsed as it arrives, flow control both ways."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from typing import cast

import httptools

Body = bytes | Sequence[bytes] | AsyncIterable[bytes]

BLOCK = 256 * 1024
"""Unit of writing, and how much of an unread answer is held before the peer has to wait."""
SMALL = 64 * 1024
"""Bodies up to this size go out together with the head, in one write."""
MAX_HEAD = 256 * 1024


class HttpError(Exception):
    """The exchange failed. `sent`: the request may have reached the peer, so its outcome is unknown."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class HttpTimeout(HttpError):  # noqa: N818 - says what happened
    """The peer stayed silent for too long."""


class Connection(asyncio.Protocol):
    """Made by the pool. `exchange` may run again when the last answer is complete and `reusable`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._paused_writing = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._spare_fd: int | None = None
        self.closed = False
        self.used = False
        self.idle_since = 0.0
        self._reset("GET", 0.0, streaming=False)
        self._active = False

    def _reset(self, method: str, timeout: float, *, streaming: bool) -> None:
        self._method = method
        self._timeout = timeout
        self._streaming = streaming
        self._active = True
        self._interim = self._until_close = self._keep_alive = self._sent_all = self._paused_reading = False
        self._error: HttpError | None = None
        self._body: list[bytes] = []
        self._buffered = self._head_bytes = 0
        self._progress = 0.0
        self.answered = self.complete = False
        self.status = 0
        self.headers: dict[str, str] = {}

    # -- what the client calls

    @property
    def reusable(self) -> bool:
        return self.complete and self._keep_alive and self._sent_all and not self.closed

    async def exchange(
        self, method: str, head: bytes, body: Body, size: int, *, timeout: float, streaming: bool
    ) -> None:
        """Send a request; return when its answer is complete or, when streaming, when its head is there."""
        if self._method == "HEAD":  # the last parser still waits for the body that never comes
            self._parser = httptools.HttpResponseParser(self)
        self._reset(method, timeout, streaming=streaming)
        self._timer = self._loop.call_later(timeout, self._look_at_the_clock)
        if isinstance(body, bytes) and size <= SMALL:
            self._transport.write(head + body)
            self._sent_all = True
        else:
            await self._send(head, body, size)
        while not (self.complete or (streaming and self.status)):
            if self._error:
                raise self._error
            await self._wait()

    def take_body(self) -> bytes:
        body = self._body
        return body[0] if len(body) == 1 else b"".join(body)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; the peer waits while the caller does."""
        while True:
            while self._body:
                chunks, self._body, self._buffered = self._body, [], 0
                for chunk in chunks:
                    yield chunk
                if self._paused_reading and not self.closed:
                    self._paused_reading = False
                    self._transport.resume_reading()
            if self.complete:
                return
            if self._error:
                raise self._error
            await self._wait()

    def finish(self) -> None:
        """The caller is done with this exchange."""
        self._active = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._drop_spare()
        if self.reusable:
            self.used = True
            self._body = []
            if self._paused_reading:
                self._transport.resume_reading()
        else:
            self.abort()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    # -- sending

    async def _send(self, head: bytes, body: Body, size: int) -> None:
        if isinstance(body, AsyncIterable):
            self._keep_spare()
            self._transport.write(head)
            await self._send_stream(body, size)
            return
        blocks = _blocks([body] if isinstance(body, bytes) else body)
        first = next(blocks, b"")
        self._transport.writelines((head, first))
        if len(first) < size or self._transport.get_write_buffer_size():
            self._keep_spare()
            await self._drain()
            for block in blocks:
                if not await self._write(block):
                    return
        self._sent_all = True

    async def _send_stream(self, body: AsyncIterable[bytes], size: int) -> None:
        left = size
        try:
            async for chunk in body:
                left -= len(chunk)
                if left < 0:
                    raise ValueError(f"the body is longer than the announced {size} bytes")
                for block in _blocks([chunk]):
                    if not await self._write(block):
                        return
        finally:
            if isinstance(body, AsyncGenerator):
                await body.aclose()
        if left:
            raise ValueError(f"the body ended {left} bytes short of the announced {size}")
        self._sent_all = True

    async def _write(self, block: bytes | memoryview) -> bool:
        """False when it makes no sense to send on: the peer has refused the request, or is gone."""
        if self.closed or self.status >= 300:
            return False
        self._transport.write(block)
        await self._drain()
        return True

    async def _drain(self) -> None:
        while self._paused_writing and not self.closed and self.status < 300:
            await self._wait()

    def _keep_spare(self) -> None:
        """A failing write makes the transport drop what the peer said before it closed; a duplicate of
        the socket can still read it (a 413 or 403 sent while the body was under way)."""
        if self._transport.get_extra_info("ssl_object") is None:
            self._spare_fd = os.dup(self._transport.get_extra_info("socket").fileno())

    def _drop_spare(self) -> None:
        if self._spare_fd is not None:
            os.close(self._spare_fd)
            self._spare_fd = None

    # -- waiting

    async def _wait(self) -> None:
        self._progress = self._loop.time()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _look_at_the_clock(self) -> None:
        """Only the peer's silence counts: neither a slow producer of the body nor a slow reader does."""
        now = self._loop.time()
        due = (self._progress if self._waiter else now) + self._timeout
        if due > now:
            self._timer = self._loop.call_at(due, self._look_at_the_clock)
            return
        self._timer = None
        self._fail(HttpTimeout(f"no answer within {self._timeout:g} s", sent=True))

    def _fail(self, error: HttpError) -> None:
        if not self.complete and self._error is None:
            self._error = error
        self.abort()
        self._wake()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BLOCK)

    def eof_received(self) -> None:
        if not self._active:
            self.closed = True  # at once: `connection_lost` comes one turn of the loop later

    def connection_lost(self, exc: Exception | None) -> None:
        if self._spare_fd is not None and not self.closed and not self.complete:
            with contextlib.suppress(OSError):
                while not self.complete and (data := os.read(self._spare_fd, BLOCK)):
                    self.data_received(data)
        self._drop_spare()
        self.closed = True
        if self._active and not self.complete and self._error is None:
            if self._until_close and exc is None:
                self.complete = True
            else:
                where = "in the middle of its answer" if self.answered else "before it answered"
                self._error = HttpError(f"the peer closed the connection {where}", sent=True)
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self._active or self.complete:
            self.abort()  # nobody asked: whatever it is, no later request may take it for its answer
            return
        self.answered = True
        self._progress = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(HttpError("the peer's answer is not HTTP/1.1", sent=True))
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._fail(HttpError("the head of the peer's answer is too long", sent=True))

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self.complete:
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else: a trailer
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim or self.complete:
            return
        self.status = status
        if self._method == "HEAD":
            kept = self.headers.get("connection", "").lower() != "close"
            self._keep_alive = kept and self._parser.get_http_version() == "1.1"
            self.complete = True
        else:
            self._keep_alive = self._parser.should_keep_alive()
            self._until_close = not ("content-length" in self.headers or "transfer-encoding" in self.headers)
        if self._streaming or self.complete or status >= 300:
            self._wake()

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self._keep_alive = False
            return
        self._body.append(data)
        if self._streaming:
            self._buffered += len(data)
            if self._buffered > BLOCK and not self._paused_reading and not self.closed:
                self._paused_reading = True
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self.headers = {}
            return
        self.complete = True
        self._wake()


def _blocks(parts: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """Small parts together, large ones in slices: each block is worth a system call and fits the buffer."""
    together: list[bytes] = []
    size = 0
    for part in parts:
        if len(part) > BLOCK // 2:
            if together:
                yield b"".join(together)
                together, size = [], 0
            view = memoryview(part)
            for start in range(0, len(part), BLOCK):
                yield view[start : start + BLOCK]
            continue
        together.append(part)
        size += len(part)
        if size >= BLOCK:
            yield b"".join(together)
            together, size = [], 0
    if together:
        yield b"".join(together)
