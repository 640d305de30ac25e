"""Calls the host's ASGI application without a network, and the fakes it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from minitoolstream.api.app import Request, Response, Route, answer
from minitoolstream.config import Settings, load_settings
from minitoolstream.host.asgi import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import Functions
from minitoolstream.host.metrics import Metrics

TOKEN = "token-of-the-tests-1"
WEBHOOK_TOKEN = "token-of-the-store-1"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    sent: list[dict[str, Any]]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


SILENCE: dict[str, Any] = {"type": "silence"}
"""A message that never comes."""


async def call(
    app: Any,
    method: str,
    target: str,
    body: bytes | list[dict[str, Any]] = b"",
    *,
    token: str | None = TOKEN,
    headers: Mapping[str, str | bytes] | list[tuple[bytes, bytes]] | None = None,
) -> Answer:
    """One request. `body` may be the ASGI messages themselves, to show how a client behaves on the way."""
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
        body = [{"type": "http.request", "body": body, "more_body": False}]
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": raw,
    }
    pending, sent = list(body), []

    async def receive() -> dict[str, Any]:
        message = pending.pop(0) if pending else {"type": "http.disconnect"}
        if message is SILENCE:
            await asyncio.Event().wait()
        return message

    async def send(message: dict[str, Any]) -> None:
        sent.append(dict(message))

    await app(scope, receive, send)
    if not sent:
        return Answer(0, {}, b"", sent)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(
        sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, content, sent
    )


class FakePart:
    """A store that is up, unless told otherwise; its lease goes to the first who asks."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.hangs = False
        self.holder: str | None = None

    async def check(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.problem:
            raise self.problem

    async def take_lease(self, _name: str, owner: str, _seconds: float) -> bool:
        self.holder = self.holder or owner
        return self.holder == owner


@dataclass
class FakeCore:
    settings: Settings
    metrics: Metrics
    metadata: FakePart = field(default_factory=FakePart)
    payloads: FakePart = field(default_factory=FakePart)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


@dataclass
class Summary:
    committed: int = 0

    def counts(self) -> dict[str, int]:
        return {"committed": self.committed}


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


async def no_work(core: Any) -> Summary:
    return Summary()


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
    host = Host(settings(**changes), functions, Metrics(Board(1), 0), Wiring(open_core, no_work))
    await host.start()
    return host
