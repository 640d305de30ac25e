"""HTTP/1.1 as the host serves it: httptools parses, a connection answers its requests one after the other.

Anyone who reaches the port can send a head, without a token: it may neither be long nor take long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import httptools

from minitoolstream.host.incoming import STATUS_LINES, Incoming
from minitoolstream.host.streaming import DisconnectedError
from minitoolstream.host.turns import Turns

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 20.0
BODY_AHEAD = 256 * 1024
"""How much of a body is read before anyone asked for it."""
REQUESTS_AHEAD = 4
"""How many requests are read while another one is answered: who stops reading does not hear the client leave."""
READ_AT_ONCE = 16 * 1024
"""How much is parsed between two looks at these bounds: the loop reads 256 KiB at once, and that is 14,000 requests."""
WRITE_SECONDS = 30.0
LAST_WRITE_SECONDS = 2.0
"""How long a client may take nothing of what is written to it; the latter when the server stops."""
KEEP_ALIVE_SECONDS = 75.0
"""The object store keeps its webhook connections for 15 s; who closes first must be the client."""
_NOTHING = memoryview(b"")
_NOT_HTTP = b'{"error":{"code":"bad_request","message":"this is not HTTP/1.1 as we understand it","details":{}}}'
log = logging.getLogger("mts.http")

Serve = Callable[[Incoming], Coroutine[Any, Any, None]]


class HttpConnection(asyncio.Protocol):
    """One client's connection. `serve` answers a request; while it does, what the client sends ahead waits.

    Hangs up on a head that is too long or takes too long, and on a client that sends nothing for long.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        serve: Serve,
        connections: set[HttpConnection],
        turns: Turns,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._serve = serve
        self._turns = turns
        self._connections = connections
        self._keep_alive_seconds = keep_alive
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._is_body = False
        self._arriving: Incoming | None = None
        self._current: Incoming | None = None
        self._ahead: deque[Incoming] = deque()
        self._task: asyncio.Task[None] | None = None
        self._in_head = self._repeats_head = self._skipped_body = False
        self._outside_bodies = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._reading = True
        self._unread = _NOTHING
        self._room: asyncio.Future[None] | None = None
        self._is_full = False
        self._write_timer: asyncio.TimerHandle | None = None
        self._is_last = False
        self._stopping = False
        self.has_ended = False
        self.is_lost = False

    # -- the transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._connections.add(self)
        self._await_head()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = self.has_ended = True
        self._connections.discard(self)
        self._end_head()
        for timer in (self._idle_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._write_timer = None
        self._ahead.clear()
        if self._current is not None:
            self._current.tell()
        self._unread = _NOTHING
        del self._parser  # the two hold each other, and the collector comes by seldom
        self.resume_writing()

    def eof_received(self) -> bool:
        """Who has asked and then closes its side gets its answer; who is waited for longer has left."""
        self.has_ended = True
        current = self._current
        if current is None or not current.complete or current.answered:
            return False
        self._is_last = True
        current.tell()
        return True

    def data_received(self, data: bytes) -> None:
        if len(data) <= READ_AT_ONCE:
            self._parse(data)
        else:
            self._unread = memoryview(data)
            self._parse_unread()

    def _parse_unread(self) -> None:
        while self._unread and self._reading and not self.transport.is_closing():
            piece, self._unread = self._unread[:READ_AT_ONCE], self._unread[READ_AT_ONCE:]
            self._parse(piece)
        if not self._unread or self.transport.is_closing():
            self._unread = _NOTHING  # the end of a view holds all that it is of, as long as the connection stays

    def _parse(self, data: bytes | memoryview) -> None:
        self._is_body = False
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse()
            return
        if not self._in_head and self._arriving is None:
            return
        # Heads and trailers are bounded: they are kept until they end.
        self._outside_bodies = 0 if self._is_body else self._outside_bodies + len(data)
        if self._outside_bodies > HEAD_BYTES:
            self._hang_up()
        elif self._in_head and self._head_timer is None:
            self._await_head()

    def _feed(self, data: bytes | memoryview) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as asked:
                data = data[asked.args[0] :]
                self._read_without_upgrade()

    def _read_without_upgrade(self) -> None:
        """Nobody has to change the protocol when asked to, and Java's client asks with each POST. The parser then skips
        the body: another one, of which nobody asks it, reads on behind the same head."""
        incoming = self._arriving
        assert incoming is not None
        told = [(name, incoming.headers.get(name)) for name in ("content-length", "transfer-encoding")]
        framing = "".join(f"{name}: {value}\r\n" for name, value in told if value is not None)
        self._parser = httptools.HttpRequestParser(self)
        self._skipped_body, self._repeats_head = False, True
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{framing}\r\n".encode("latin-1"))
        self._repeats_head = False

    def pause_writing(self) -> None:
        self._is_full = True
        self._await_write(WRITE_SECONDS)

    def resume_writing(self) -> None:
        self._is_full = False
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._current is None:
            self._start_next()

    # -- the parser's side

    def on_message_begin(self) -> None:
        if self._repeats_head:
            return
        self._in_head = True
        self._outside_bodies = 0
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._arriving is not None:
            return  # a trailer: what is said behind the body was not there when it was decided who may send it
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        if self._repeats_head:
            return
        self._end_head()
        path, query = _split(self._url)
        parser = self._parser
        incoming = Incoming(self, parser.get_method().decode("ascii"), path, query, self._headers)
        incoming.keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self._skipped_body = parser.should_upgrade()
        self._arriving = incoming
        if self._current is None and not self._is_full:
            self._start(incoming)
        else:
            self._ahead.append(incoming)
            if len(self._ahead) >= REQUESTS_AHEAD:
                self._pause_reading()

    def on_body(self, chunk: bytes) -> None:
        self._is_body = True
        incoming = self._arriving
        assert incoming is not None
        if incoming.answered:
            return
        incoming.add(chunk)
        if incoming.body_ahead > BODY_AHEAD:
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._skipped_body:
            return
        incoming, self._arriving = self._arriving, None
        assert incoming is not None
        incoming.complete = True
        incoming.tell()

    # -- requests, one after the other

    def _start(self, incoming: Incoming) -> None:
        self._current = incoming
        self._turns.begin(incoming.path, partial(self._begin, incoming))

    def _begin(self, incoming: Incoming) -> None:
        if not self.is_lost:
            self._task = self._loop.create_task(self._run(incoming))

    async def _run(self, incoming: Incoming) -> None:
        try:
            await self._serve(incoming)
        except DisconnectedError:
            log.debug("a client left before its answer was complete")
            self._close()
        except Exception:
            log.exception("a request failed outside its route")
            self._close()
        finally:
            self._ended(incoming)

    def _ended(self, incoming: Incoming) -> None:
        self._current = self._task = None
        is_last = self._stopping or (self._is_last and not self._ahead)
        if is_last or not (incoming.answered and incoming.keep_alive):
            self._close()
        if self.is_lost or self.transport.is_closing():
            return
        self.resume_reading()
        self._idle_since = self._loop.time()
        if self._idle_timer is None:
            self._close_idle_after(self._keep_alive_seconds)
        self._start_next()

    def _start_next(self) -> None:
        if self._ahead and not self._is_full:
            self._start(self._ahead.popleft())
            self.resume_reading()

    def write(self, data: bytes) -> None:
        if self.transport.is_closing():
            raise DisconnectedError
        self.transport.write(data)

    async def drained(self) -> None:
        """Returns when the client has taken enough of what was written."""
        if self._is_full:
            self._room = self._loop.create_future()
            await self._room

    def finish(self) -> None:
        """Close when what runs is answered; at once when nothing runs."""
        if not self._stopping and self.transport.get_write_buffer_size():
            self._await_write(LAST_WRITE_SECONDS)
        self._stopping = True
        if self._current is None:
            self._close()

    def _close(self) -> None:
        """What is written goes out first, if the client takes it."""
        self.transport.close()
        if self._write_timer is None and self.transport.get_write_buffer_size():
            self._await_write(WRITE_SECONDS)

    def _await_write(self, seconds: float) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._write_timer = self._loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self.transport.abort()

    # -- what may be read, and for how long it may take

    def resume_reading(self) -> None:
        if not self._reading and len(self._ahead) < REQUESTS_AHEAD and not self._is_last:
            self._reading = True
            if self._unread:
                self._loop.call_soon(self._read_on)  # not at once: those that came before are begun first
            else:
                self.transport.resume_reading()

    def _read_on(self) -> None:
        """What was read and waits comes before what is still in the socket."""
        self._parse_unread()
        if self._reading and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(HEAD_SECONDS, self._hang_up)

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _hang_up(self) -> None:
        self._end_head()
        self._close()

    def _refuse(self) -> None:
        """What came before the nonsense is answered first. Whose own body it is finds the client gone."""
        if self._arriving is not None and self._arriving in self._ahead:
            self._ahead.remove(self._arriving)
        if self._current is not None and self._current.complete:
            self._is_last = True
            self._pause_reading()
            return
        if self._current is None or not self._current.answered:
            head = f"{STATUS_LINES[400]}content-type: application/json\r\ncontent-length: {len(_NOT_HTTP)}\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n".encode() + _NOT_HTTP)
        self._hang_up()

    def _close_idle_after(self, seconds: float) -> None:
        self._idle_timer = self._loop.call_later(seconds, self._look_if_idle)

    def _look_if_idle(self) -> None:
        """The timer stays, and looks when it goes off: cheaper than a new one for each request."""
        self._idle_timer = None
        if self._current is not None or self._in_head:
            return
        left = self._idle_since + self._keep_alive_seconds - self._loop.time()
        if left > 0:
            self._close_idle_after(left)
        else:
            self._close()


def _split(url: bytes) -> tuple[str, bytes]:
    """Path and query as they came. A proxy's absolute form has them behind its host."""
    if url[:1] != b"/":
        parsed = httptools.parse_url(url)
        return (parsed.path or b"").decode("latin-1"), parsed.query or b""
    path, _, query = url.partition(b"?")
    return path.decode("latin-1"), query
