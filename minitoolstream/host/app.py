"""The application of one worker: its life, its routes, what is counted and logged of a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec

from minitoolstream.api.app import Request, Response, Route
from minitoolstream.api.auth import CATALOG, BearerGuard, HostGuard, OwnersGuard
from minitoolstream.api.cors import Cors
from minitoolstream.api.openapi import openapi
from minitoolstream.bundle import bundled
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.dispatch import Dispatcher, api_endpoint, own_endpoint
from minitoolstream.host.exchange import Exchange, request_ids
from minitoolstream.host.functions import Functions
from minitoolstream.host.health import healthz, readyz
from minitoolstream.host.incoming import Incoming
from minitoolstream.host.keep_ceiling import keep_ceiling, open_sequences
from minitoolstream.host.metrics import CONTENT_TYPE, HOST, WEBHOOK, Metrics
from minitoolstream.host.pages import page_routes
from minitoolstream.host.retention_gauges import RetentionGauges
from minitoolstream.host.router import Router
from minitoolstream.host.schedules import Schedule
from minitoolstream.host.sqs import Poller, open_queue
from minitoolstream.host.webhook import PATH, Webhook
from minitoolstream.services.jobs import Job

SLOW_SECONDS = 1.0
PUBLISH_METRICS_EVERY = 0.25
FINISH_SECONDS = 5.0
log = logging.getLogger("mts.host")


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a worker joins the routes to; tests hand in fakes."""

    open_core: Callable[[Settings, Metrics], Awaitable[Any]]
    jobs: Sequence[Job] = ()
    settle_in: Callable[[Any], Coroutine[Any, Any, None]] | None = None
    """What is done once, when parts are there."""
    at_stop: Callable[[Any], Awaitable[object]] | None = None
    """What is done once more when nothing comes in any more."""


class Host:
    """`serve` answers a request. `drain` ends the waits of long polls, before the server stops."""

    def __init__(self, settings: Settings, functions: Functions, metrics: Metrics, wiring: Wiring) -> None:
        self._settings = settings
        self._functions = functions
        self._metrics = metrics
        self._wiring = wiring
        self._cors = Cors(settings["server.cors_origins"])
        self._webhook = Webhook(functions.handle_event)
        self._dispatcher = Dispatcher(self._routes(), self._cors)
        self._new_id = request_ids()
        self._tasks: list[asyncio.Task[None]] = []
        self._gauges = RetentionGauges()
        self.core: Any = None

    def _routes(self) -> Router:
        settings, router = self._settings, Router()
        token, tokens = BearerGuard(settings.secret("server.token"), "api"), settings["catalog.tokens"] or {}
        guard, owners = HostGuard(token, tokens), OwnersGuard(token, tokens)
        for function, route in self._functions.routes:
            router.add(api_endpoint(function, route, owners if function == CATALOG else guard, settings))
        description = msgspec.json.encode(openapi(self._functions.routes))

        async def openapi_json(_request: Request) -> Response:
            return Response(description, 200, {"content-type": "application/json", "cache-control": "no-cache"})

        async def metrics(_request: Request) -> Response:
            gauges = await self._gauges.read(self.core) if self.core is not None else ()
            return Response(self._metrics.render(gauges), 200, {"content-type": CONTENT_TYPE})

        own = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/openapi.json": openapi_json}
        for path, handler in own.items():
            for method in ("GET", "HEAD"):
                router.add(own_endpoint(Route(method, path, handler, path)))
        for page in page_routes(bundled("web"), settings["minio.public_endpoint"] or settings["minio.endpoint"]):
            router.add(own_endpoint(page))
        if token := settings["server.webhook_token"]:
            route = Route("POST", PATH, self._webhook.object_created, "an event of the object store")
            router.add(own_endpoint(route, BearerGuard(token, "object-store"), WEBHOOK))
        return router

    async def serve(self, incoming: Incoming) -> None:
        """DisconnectedError when the client leaves before its request, or its answer, is complete."""
        began = perf_counter()
        exchange = Exchange(incoming, self._new_id)
        response = await self._dispatcher.answer(exchange)
        seconds = perf_counter() - began
        self._metrics.streams += response.stream is not None
        try:
            await exchange.respond(response, self._cors.headers_for(exchange.headers.get("origin")))
        finally:
            self._metrics.streams -= response.stream is not None
        endpoint = exchange.endpoint
        side, label = (endpoint.side, endpoint.label) if endpoint else (HOST, "none")
        self._metrics.request(side, label, response.status, seconds)
        waits = b"wait=" in exchange.query or (endpoint is not None and endpoint.route.waits)
        if response.status >= 500 or (seconds > SLOW_SECONDS and not waits):
            self._log(logging.WARNING, exchange, response.status, seconds)
        elif log.isEnabledFor(logging.DEBUG):
            # A line costs as much as the whole dispatch, and /metrics counts for less.
            self._log(logging.DEBUG, exchange, response.status, seconds)

    def _log(self, level: int, exchange: Exchange, status: int, seconds: float) -> None:
        error = exchange.error
        fields = {
            "request_id": exchange.request_id,
            "method": exchange.method,
            "path": exchange.path,
            "status": status,
            "ms": round(seconds * 1000, 1),
        }
        log.log(level, f"{error.code}: {error.message}" if error else "request", extra={"fields": fields})

    async def start(self) -> None:
        """Opens no connection that must succeed: a host starts with Tarantool or the store down."""
        settings = self._settings
        core = await self._wiring.open_core(settings, self._metrics)
        self.core = self._dispatcher.core = core
        self._tasks = [asyncio.create_task(self._publish_metrics())]
        for job in self._wiring.jobs:
            if pause := job.pause(settings):
                self._tasks.append(asyncio.create_task(Schedule(core, job, pause).run()))
        await open_sequences(core)
        self._tasks.append(asyncio.create_task(keep_ceiling(core)))
        if self._wiring.settle_in is not None:
            self._tasks.append(asyncio.create_task(self._wiring.settle_in(core)))
        if url := settings["object_store.queue_url"]:
            poller = Poller(open_queue(settings), url, core, self._functions.handle_event)
            self._tasks.append(asyncio.create_task(poller.run()))

    def drain(self) -> None:
        """From now on nothing waits any more: receipts are answered as they are."""
        if self.core is not None:
            self.core.draining.set()

    async def stop(self) -> None:
        self.drain()
        await self._webhook.finish(FINISH_SECONDS)
        for task in self._tasks:
            task.cancel()
        for problem in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(problem, Exception):
                log.error("a background task had failed", exc_info=problem)
        await self._finish()
        self._metrics.publish()
        await self.core.close()

    async def _finish(self) -> None:
        if self._wiring.at_stop is None:
            return
        try:
            await asyncio.wait_for(self._wiring.at_stop(self.core), FINISH_SECONDS)
        except (MtsError, TimeoutError) as error:
            log.warning("the journal was not written to its end: %s", error)

    async def _publish_metrics(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_METRICS_EVERY)
            self._metrics.publish()
