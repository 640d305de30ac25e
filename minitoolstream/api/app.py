"""One way to write a route, two ways to run it: Chalice gets a plain function, the host the coroutine."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from chalice import app as chalice

from minitoolstream.api.auth import CATALOG, BearerGuard, OwnersGuard
from minitoolstream.api.cors import Cors
from minitoolstream.api.errors import error_response
from minitoolstream.api.own_headers import check_own_headers
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_ANSWER_BYTES
from minitoolstream.request_id import request_id
from minitoolstream.services.core import Core


@dataclass(slots=True)
class Request:
    """A request as a route sees it, whoever received it. Header names are lower case."""

    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    core: Core = field(default=None)  # type: ignore[assignment] # set by whoever dispatches
    principal: str | None = None
    may_stream: bool = False


@dataclass(slots=True)
class Response:
    """`stream`: what follows the body, as it comes; only where the request may stream."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


def sent_headers(response: Response, request_id: str, more: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What an answer carries, whoever sends it."""
    headers = [("x-request-id", request_id), ("x-content-type-options", "nosniff"), *more]
    headers += response.headers.items()
    if "cache-control" not in response.headers:
        # Answers carry presigned URLs: whoever holds one may use it.
        headers.append(("cache-control", "no-store"))
    return headers


Handler = Callable[[Request], Awaitable[Response]]
Parameter = tuple[str | Mapping[str, Any], str]
T = TypeVar("T")
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(_encode(value), status, {"content-type": "application/json"})


@dataclass(frozen=True, slots=True)
class Route:
    """A route with what OpenAPI says about it.

    `also` are further statuses that carry the same answer. `query` and `headers` map names to a JSON type (or
    a whole JSON schema) and a description; query parameters and `X-Mts-` headers that are not listed are refused.
    `raw_body` are the media types that are taken as they are, `json_type` is that of `request`, `body_needed` says
    whether that may be left out. `waits`: it may take long, and shall end when the client leaves. `may_lack`: what
    it shows need not exist, though its path names nothing.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    request: Any = None
    response: Any = None
    status: int = 200
    query: Mapping[str, Parameter] = field(default_factory=dict)
    raw_body: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    headers: Mapping[str, Parameter] = field(default_factory=dict)
    json_type: str = "application/json"
    body_needed: bool = True
    waits: bool = False
    may_lack: bool = False


class App(chalice.Chalice):
    """A Chalice app whose routes are coroutines; `api_routes` is what the host and OpenAPI read. `commits`: its routes
    publish messages."""

    def __init__(self, name: str, *, commits: bool = False) -> None:
        super().__init__(app_name=f"mts-{name}")
        self.commits = commits
        self.api_routes: list[Route] = []

    def endpoint(self, method: str, path: str, summary: str, **about: Any) -> Callable[[Handler], Handler]:
        """Register a coroutine as a route; `about` are the other fields of Route. (Chalice owns the name `api`.)"""

        def register(handler: Handler) -> Handler:
            route = Route(method, path, handler, summary, **about)
            self.api_routes.append(route)

            def view(**params: str) -> chalice.Response:
                return _run_on_lambda(self, route, params)

            view.__name__ = handler.__name__
            self.route(path, methods=[method], content_types=["*/*"], name=handler.__name__)(view)
            return handler

        return register


def _run_on_lambda(app: App, route: Route, params: Mapping[str, str]) -> chalice.Response:
    raw = app.current_request
    assert raw is not None
    body = raw.raw_body
    request = Request(
        method=raw.method,
        path=raw.path,
        params=params,
        query=dict(raw.query_params or {}),
        headers={key.lower(): value for key, value in raw.headers.items()},
        body=body if isinstance(body, bytes) else body.encode(),
        request_id=raw.context.get("requestId", "-"),
    )
    response, cors = run(_guarded(app, route, request))
    if len(json.dumps(response.body.decode())) > MAX_ANSWER_BYTES:
        # Lambda would answer for us, with what looks like a failure that another try could mend.
        problem = MtsError("too_large", "the answer is larger than the 6 MB that a function may send: ask for fewer")
        response = error_response(problem, route.path)
    headers = sent_headers(response, request.request_id, cors.headers_for(request.headers.get("origin")))
    return chalice.Response(body=response.body.decode(), status_code=response.status, headers=dict(headers))


_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the container's one event loop, which connections live on between calls."""
    global _loop  # noqa: PLW0603 - a Lambda container has no other place that outlives a call
    if _loop is None:
        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)


async def _guarded(app: App, route: Route, request: Request) -> tuple[Response, Cors]:
    """What the host's dispatcher does, as far as API Gateway has not: who asks, what is asked, one shape of errors.
    Pages of which origins may read it goes with the answer."""
    from minitoolstream import container

    async def handled(core: Core) -> Response:
        request.core = core
        settings = core.settings
        guard = BearerGuard(settings.secret("server.token"), "api")
        owners = settings["catalog.tokens"] or {} if app.app_name == f"mts-{CATALOG}" else {}
        request.principal = OwnersGuard(guard, owners).principal_of(request.headers)
        _check_query(route, request)
        check_own_headers(request.headers, route.headers)
        return await route.handler(request)

    request_id.set(request.request_id)
    started = time.perf_counter()
    cors = Cors(())
    try:
        cors = Cors(container.current().plain_settings()["server.cors_origins"])
        response = await container.current().use(handled, commits=app.commits)
    except MtsError as error:
        response = error_response(error, route.path)
    except Exception:
        _log.exception("a route failed")
        problem = MtsError("internal", "something went wrong on our side; the log says more")
        response = error_response(problem, route.path)
    took = (time.perf_counter() - started) * 1000
    _log.info("%s %s %s %d %.1f ms", request.request_id, route.method, route.path, response.status, took)
    return response, cors


def _check_query(route: Route, request: Request) -> None:
    unknown = sorted(set(request.query) - set(route.query))
    if unknown:
        raise bad_request(f"unknown query parameters: {', '.join(unknown)}")
