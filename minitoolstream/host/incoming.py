"""A request as it comes in over a connection, and the way to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from minitoolstream.host.streaming import DisconnectedError

if TYPE_CHECKING:
    from minitoolstream.host.http import HttpConnection

HALF_CLOSED = 0.05
"""Seconds that a client who has closed its side, and may still read, is waited for."""
STATUS_LINES = {int(status): f"HTTP/1.1 {status} {status.phrase}\r\n" for status in HTTPStatus}

Headers = Sequence[tuple[str, str]]


class Incoming:
    """A request as it comes in, and the way to answer it: either `answer`, or `begin`, `write` and `end`.

    `path` is still percent-encoded: a decoded one cannot tell `/` from `%2F`. Names of headers are lower case, values
    Latin-1 as HTTP has them, repeated ones are joined.
    """

    __slots__ = (
        "_chunked",
        "_chunks",
        "_connection",
        "_leave",
        "_leaving",
        "_news",
        "_waits_for_continue",
        "answered",
        "body_ahead",
        "complete",
        "headers",
        "keep_alive",
        "method",
        "path",
        "query",
    )

    def __init__(
        self, connection: HttpConnection, method: str, path: str, query: bytes, headers: dict[str, str]
    ) -> None:
        self._connection = connection
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.keep_alive = True
        self.answered = False
        self.complete = False
        self.body_ahead = 0
        self._chunks: list[bytes] = []
        self._chunked = False
        self._news: asyncio.Future[None] | None = None
        self._leave: Callable[[], None] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._waits_for_continue = "expect" in headers and headers["expect"].lower() == "100-continue"

    def whole_body(self) -> bytes | None:
        """The body, when all of it has come."""
        if not self.complete:
            return None
        return self._take()

    async def receive(self) -> tuple[bytes, bool]:
        """What came of the body since the last call, and whether there is more to come."""
        while not self._chunks and not self.complete:
            if self._waits_for_continue:
                self._waits_for_continue = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._wait_for_news()
        return self._take(), not self.complete

    def when_left(self, leave: Callable[[], None] | None) -> None:
        """Have `leave` called, once, when the client is gone, or sends no more and has waited a moment; None: not any
        more."""
        self._leave = leave
        self._look_if_left()

    def _look_if_left(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if self._leave is not None and self._connection.has_ended:
            pause = 0 if self._connection.is_lost else HALF_CLOSED
            self._leaving = asyncio.get_running_loop().call_later(pause, self._left)

    def _left(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def answer(self, status: int, headers: Headers, body: bytes, *, last: bool = False) -> None:
        """The whole answer in one write. `last`: nothing more is read of this connection."""
        if last:
            self.keep_alive = False
        head = self._head(status, [*headers, ("content-length", str(len(body)))])
        self._connection.write(head if self.method == "HEAD" else head + body)

    def begin(self, status: int, headers: Headers) -> None:
        """The head of an answer whose length nobody knows yet; it goes out at once."""
        self._chunked = self.keep_alive
        more = [("transfer-encoding", "chunked")] if self._chunked else []
        self._connection.write(self._head(status, [*headers, *more]))

    async def write(self, piece: bytes) -> None:
        """Returns when the piece is out of our hands: a slow client is waited for."""
        if not piece:
            return
        self._connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
        await self._connection.drained()

    def end(self) -> None:
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: Headers) -> bytes:
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if not self.keep_alive:
            lines.append("connection: close\r\n")
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ValueError("a header holds a line break")
        self.answered, self._waits_for_continue = True, False
        return f"{STATUS_LINES[status]}{text}\r\n".encode()

    def _take(self) -> bytes:
        chunks = self._chunks
        if not chunks:
            return b""
        self._chunks = []
        self.body_ahead = 0
        self._connection.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _wait_for_news(self) -> None:
        if self._connection.is_lost:
            raise DisconnectedError
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    # -- what the connection has to say

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.body_ahead += len(chunk)
        self.tell()

    def tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        if self._leave is not None:
            self._look_if_left()
