"""Health and reflection: whoever reaches a port may ask, and so a little at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2 as pb
from grpc_reflection.v1alpha import reflection

from minitoolstream.grpc.calls import Context

WATCHERS = 200
CURIOUS = 20
ASKING = 20
_REFLECTION_SECONDS = 30.0
_ASK_SECONDS = 5.0
_TOO_MANY = "too many ask at once; try again shortly"
_States = pb.HealthCheckResponse


class Health:
    """The library's own holds a lock while it writes: one watcher that does not read would stop all, and the server.
    And it reads whatever comes: here, few requests are read at a time, and not for long."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services))
        self._status: int = _States.NOT_SERVING
        self._changed = asyncio.Event()
        self._asking = 0
        self._watchers = 0
        self._stopping = False

    def handlers(self) -> grpc.GenericRpcHandler:
        """Requests come as streams, so that nothing is read before we ask for it."""
        write = _States.SerializeToString
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.stream_stream_rpc_method_handler(self.check, None, write),
            "Watch": grpc.stream_stream_rpc_method_handler(self.watch, None, write),
        }
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)

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

    async def _is_known(self, context: Context) -> bool:
        """Whether the service that the request names is one of ours."""
        if self._asking >= ASKING:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)
        self._asking += 1
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                request = await context.read()
            return request is not grpc.aio.EOF and pb.HealthCheckRequest.FromString(request).service in self._services
        except TimeoutError:
            return await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not come")
        except DecodeError:
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read")
        finally:
            self._asking -= 1

    async def check(self, _requests: object, context: Context) -> AsyncIterator[_States]:
        if not await self._is_known(context):
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        yield _States(status=self._status)

    async def watch(self, _requests: object, context: Context) -> AsyncIterator[_States]:
        if self._watchers >= WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS} watch already: use Check")
        self._watchers += 1
        try:
            known, is_ours = None, await self._is_known(context)
            while True:
                changed, is_last = self._changed, self._stopping
                status = self._status if is_ours else _States.SERVICE_UNKNOWN
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
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)
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
