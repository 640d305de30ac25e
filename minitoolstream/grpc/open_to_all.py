"""Health and reflection: whoever reaches a port may ask, and so a little at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from minitoolstream.grpc.calls import Context

WATCHERS = 200
CURIOUS = 20
_REFLECTION_SECONDS = 30.0
_States = pb.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """The library's own holds a lock while it writes: one watcher that does not read would stop all, and the server."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services))
        self._status: int = _States.NOT_SERVING
        self._changed = asyncio.Event()
        self._watchers = 0
        self._stopping = False

    def tell(self, *, serving: bool) -> None:
        """Of all services at once."""
        if not self._stopping:
            self._status = _States.SERVING if serving else _States.NOT_SERVING
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def stop(self) -> None:
        """Watchers are told so, and sent away."""
        self.tell(serving=False)
        self._stopping = True

    async def Check(self, request: pb.HealthCheckRequest, context: Context) -> _States:  # noqa: N802
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return _States(status=self._status)

    async def Watch(self, request: pb.HealthCheckRequest, context: Context) -> AsyncIterator[_States]:  # noqa: N802
        if self._watchers >= WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS} watch already: use Check")
        self._watchers += 1
        try:
            known = None
            while True:
                changed, is_last = self._changed, self._stopping
                status = self._status if request.service in self._services else _States.SERVICE_UNKNOWN
                if status != known:
                    yield _States(status=status)
                    known = status
                if is_last:
                    return
                await changed.wait()
        finally:
            self._watchers -= 1


class Reflection:
    """A question takes no time: whoever stays for long only holds a place."""

    def __init__(self, services: Sequence[str]) -> None:
        self._answers: Any = reflection.aio.ReflectionServicer(services)
        self._asking = 0

    async def ServerReflectionInfo(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Any]:
        if self._asking >= CURIOUS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask at once; try again shortly")
        self._asking += 1
        try:
            async for answer in self._answers.ServerReflectionInfo(_for_a_while(requests), context):
                yield answer
        finally:
            self._asking -= 1


async def _for_a_while(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Requests until they take too long."""
    try:
        while True:
            async with asyncio.timeout(_REFLECTION_SECONDS):
                request = await anext(requests, None)
            if request is None:
                return
            yield request
    except TimeoutError:
        return
