"""From an exchange to the route that answers it: found, allowed, read, run; every failure has one shape."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from minitoolstream.api.app import Request, Response, Route
from minitoolstream.api.cors import Cors
from minitoolstream.api.errors import error_response
from minitoolstream.api.own_headers import check_own_headers
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.host.exchange import BodyBudget, Exchange
from minitoolstream.host.metrics import EGRESS, HOST, INGRESS
from minitoolstream.host.router import Endpoint, Guard, Router, parse_query
from minitoolstream.host.streaming import DisconnectedError
from minitoolstream.request_id import request_id

BODY_LIMIT = 1 * MIB
BODIES_AT_ONCE = 256 * MIB  # of one worker: what clients send at once must not decide how much memory it takes
_PAYLOAD_LIMITS = {"/messages": "server.inline_limit", "/messages/batch": "server.batch_limit"}
_LARGE = {"/v1/catalog/batches": "server.batch_limit"}
_SIDES = {"publish": INGRESS, "fetch": EGRESS}
log = logging.getLogger("mts.host")


def api_endpoint(function: str, route: Route, guard: Guard, settings: Settings) -> Endpoint:
    """A function's route, as the host serves it: always with a token."""
    side = _SIDES.get(function, HOST)
    for ending, setting in _PAYLOAD_LIMITS.items():
        if route.method == "POST" and route.path.endswith(ending):
            return Endpoint(route, guard, settings[setting], side, _name(route), payload=True)
    limit = settings[_LARGE[route.path]] if route.path in _LARGE else BODY_LIMIT
    return Endpoint(route, guard, limit if route.method in {"POST", "PUT"} else 0, side, _name(route))


def own_endpoint(route: Route, guard: Guard | None = None, side: str = HOST) -> Endpoint:
    """One of the host's own: open to all, or with a guard of its own."""
    return Endpoint(route, guard, BODY_LIMIT if guard else 0, side, _name(route))


def _name(route: Route) -> str:
    return getattr(route.handler, "__name__", route.path)


class Dispatcher:
    """Answers exchanges; never raises but for a client that is gone."""

    def __init__(self, router: Router, cors: Cors) -> None:
        self._router = router
        self._cors = cors
        self.core: Any = None
        self._bodies = BodyBudget(BODIES_AT_ONCE)

    async def answer(self, exchange: Exchange) -> Response:
        try:
            request_id.set(exchange.request_id)
            return await self._run(exchange)
        except MtsError as error:
            exchange.error = error
            response = error_response(error, exchange.path)
            if error.code == "method_not_allowed":
                response.headers["allow"] = ", ".join(error.details["allow"])
            return response
        except DisconnectedError:
            raise
        except Exception:
            log.exception("a route failed", extra={"fields": {"method": exchange.method, "path": exchange.path}})
            exchange.error = MtsError(
                "internal",
                "something went wrong on our side; the log has more under this request id",
                {"request_id": exchange.request_id},
            )
            return error_response(exchange.error, exchange.path)

    async def _run(self, exchange: Exchange) -> Response:
        headers = exchange.headers
        if exchange.method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            return Response(b"", 204, self._cors.preflight(headers))
        endpoint, params = self._router.find(exchange.method, exchange.path)
        exchange.endpoint = endpoint
        principal = endpoint.guard.principal_of(headers) if endpoint.guard else None
        query = parse_query(exchange.query, endpoint.query)
        check_own_headers(headers, endpoint.headers)
        try:
            return await self._handle(exchange, endpoint, params, query, principal)
        finally:
            self._bodies.release(exchange.body_bytes)

    async def _handle(
        self,
        exchange: Exchange,
        endpoint: Endpoint,
        params: Mapping[str, str],
        query: Mapping[str, str],
        principal: str | None,
    ) -> Response:
        body = await exchange.read_body(endpoint, self._bodies)
        running = endpoint.route.handler(
            Request(
                exchange.method,
                exchange.path,
                params,
                query,
                exchange.headers,
                body,
                exchange.request_id,
                self.core,
                principal,
                may_stream=True,
            )
        )
        return await (exchange.until_left(running) if endpoint.route.waits else running)
