"""Calls the host over HTTP without a network, and the fakes it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import httptools
import msgspec

from minitoolstream.api.app import Request, Response, Route, answer
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import unavailable
from minitoolstream.host.app import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import Functions
from minitoolstream.host.http import HttpConnection
from minitoolstream.host.incoming import Incoming
from minitoolstream.host.metrics import Metrics
from minitoolstream.host.turns import Turns

TOKEN = "token-of-the-tests-1"
WEBHOOK_TOKEN = "token-of-the-store-1"
WITHIN = 10.0


class Client(Enum):
    """What a client does behind the pieces of a body that it has sent."""

    LEAVES = "closes the connection"
    STAYS = "sends no more, and waits"


class Wire(asyncio.Transport):
    """A connection in memory: what the host writes, and whether it has closed. `ended`: nothing more is to come."""

    def __init__(self, serve: Callable[[Incoming], Any]) -> None:
        super().__init__()
        self.written = b""
        self.closed = asyncio.Event()
        self.ended = asyncio.Event()
        self._is_lost = False

        async def served(incoming: Incoming) -> None:
            try:
                await serve(incoming)
            finally:
                self.ended.set()

        self.connection = HttpConnection(served, set(), Turns())
        self.connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self.ended.set()
            asyncio.get_running_loop().call_soon(self.lose)

    abort = close

    def lose(self) -> None:
        """Whoever closes it, a connection is lost once."""
        if not self._is_lost:
            self._is_lost = True
            self.connection.connection_lost(None)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@dataclass
class Answer:
    """`whole`: all that was announced came. `closed`: the host closed the connection behind it."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    closed: bool = False

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode()] = value.decode()

    def on_body(self, chunk: bytes) -> None:
        self.body += chunk

    def on_message_complete(self) -> None:
        self.whole = True


async def call(
    host: Host,
    method: str,
    target: str,
    body: bytes | Sequence[bytes | Client] = b"",
    *,
    token: str | None = TOKEN,
    headers: Mapping[str, str | bytes] | list[tuple[bytes, bytes]] | None = None,
) -> Answer:
    """One request; nothing of an answer has the status 0. `body` may be its pieces, each sent for itself."""
    raw: list[tuple[bytes, bytes]] = []
    if isinstance(headers, list):
        raw += headers
    else:
        for name, value in (headers or {}).items():
            raw.append((name.lower().encode(), value if isinstance(value, bytes) else value.encode()))
    names = {name for name, _ in raw}
    if token is not None and b"authorization" not in names:
        raw.append((b"authorization", f"Bearer {token}".encode()))
    if isinstance(body, bytes):
        if body and b"content-length" not in names:
            raw.append((b"content-length", str(len(body)).encode()))
        body = [body]
    head = b"%b %b HTTP/1.1\r\n" % (method.encode(), target.encode("latin-1"))
    wire = Wire(host.serve)
    wire.connection.data_received(head + b"".join(b"%b: %b\r\n" % one for one in raw) + b"\r\n")
    async with asyncio.timeout(WITHIN):
        await _send(wire, body, chunked=b"transfer-encoding" in names)
        await wire.ended.wait()
    await asyncio.sleep(0)
    return _read(wire, method)


async def _send(wire: Wire, body: Sequence[bytes | Client], *, chunked: bool) -> None:
    """Each piece when the host has had time to take the one before."""
    for piece in body:
        if piece is Client.STAYS:
            return
        if piece is Client.LEAVES:
            wire.lose()
            return
        assert isinstance(piece, bytes)
        if piece and not wire.is_closing():
            wire.connection.data_received(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        for _ in range(5):
            await asyncio.sleep(0)
    if chunked and not wire.is_closing():
        wire.connection.data_received(b"0\r\n\r\n")


def _read(wire: Wire, method: str) -> Answer:
    answer = Answer(closed=wire.is_closing())
    if not wire.written:
        return answer
    parser = httptools.HttpResponseParser(answer)
    parser.feed_data(wire.written)
    answer.status = parser.get_status_code()
    answer.whole = answer.whole or method == "HEAD"
    return answer


class FakePart:
    """A store that is up, unless told otherwise; each lease goes to the first who asks."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.hangs = False
        self.holders: dict[str, str] = {}

    async def check(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.problem:
            raise self.problem

    async def keep(self) -> int:
        await self.check()
        return 1

    async def status(self) -> Any:
        raise unavailable("nobody is there")

    async def take_lease(self, name: str, owner: str, _seconds: float) -> bool:
        return self.holders.setdefault(name, owner) == owner


@dataclass
class FakeCore:
    settings: Settings
    metrics: Metrics
    metadata: FakePart = field(default_factory=FakePart)
    payloads: FakePart = field(default_factory=FakePart)
    retention: FakePart = field(default_factory=FakePart)
    ceiling: FakePart = field(default_factory=FakePart)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


async def echo(request: Request) -> Response:
    """Says what arrived."""
    return answer(
        {
            "params": request.params,
            "query": request.query,
            "headers": request.headers,
            "body": request.body.decode("latin-1"),
            "request_id": request.request_id,
            "principal": request.principal,
        }
    )


async def no_events(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
    return {"committed": 0}


async def no_work(core: Any) -> dict[str, int]:
    return {}


ROUTES = (
    ("publish", Route("POST", "/v1/subjects/{subject}/messages", echo, "inline")),
    ("publish", Route("POST", "/v1/subjects/{subject}/messages/batch", echo, "batch")),
    ("publish", Route("POST", "/v1/subjects/{subject}/uploads", echo, "ticket")),
    (
        "publish",
        Route("GET", "/v1/uploads/{upload_id}", echo, "receipt", query={"wait": ("number", "seconds")}),
    ),
    ("publish", Route("DELETE", "/v1/uploads/{upload_id}", echo, "abort")),
    (
        "fetch",
        Route(
            "GET",
            "/v1/subjects/{subject}/messages",
            echo,
            "messages",
            query={"start": ("string", "first"), "limit": ("integer", "how many")},
        ),
    ),
)


def settings(**changes: Any) -> Settings:
    values = {"server__token": TOKEN, "server__webhook_token": WEBHOOK_TOKEN, **changes}
    return load_settings({"MTS_HOME": "/nonexistent"}).with_values(**values)


async def open_host(
    *more: tuple[str, Route],
    handle_event: Callable[[Any, dict[str, Any], str], Awaitable[dict[str, Any]]] = no_events,
    **changes: Any,
) -> Host:
    """A host that has started, on fakes."""

    async def open_core(given: Settings, metrics: Metrics) -> FakeCore:
        return FakeCore(given, metrics)

    functions = Functions((*ROUTES, *more), handle_event)
    host = Host(settings(**changes), functions, Metrics(Board(1), 0), Wiring(open_core))
    await host.start()
    return host
