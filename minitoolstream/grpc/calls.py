"""What every call goes through: who asks, one shape of errors, what is counted and logged."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from minitoolstream.api.auth import BearerGuard
from minitoolstream.api.errors import answer_code, grpc_status, http_status
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.grpc.slots import Slots
from minitoolstream.pb.names import ERROR_CODE, ERROR_SEQUENCE
from minitoolstream.request_id import request_id

SILENCE = 20.0
Context = grpc.aio.ServicerContext[Any, Any]
_log = logging.getLogger("mts.grpc")


class Told(Enum):
    """How a service tells what is wrong with a request."""

    IN_ANSWER = "in the answer; what is not the request's fault as a status"
    ALL_IN_ANSWER = "in the answer, whatever it is"
    UNKNOWN = "as status UNKNOWN"


@dataclass(frozen=True, slots=True)
class Gate:
    """`guard` None: whoever comes is let in. `reading`: the requests that are read at once. `count` gets a method, its
    status and its seconds."""

    guard: BearerGuard | None
    told: Told
    reading: Slots
    count: Callable[[str, int, float], None]
    new_id: Callable[[], str]


def handlers(service: ServiceDescriptor, servicer: object, gate: Gate) -> grpc.GenericRpcHandler:
    """Every method of a service by the servicer's coroutine, or async generator, of the same name."""
    calls = [_Call(method, getattr(servicer, _snake_case(method.name)), gate) for method in service.methods]
    return _Service({f"/{service.full_name}/{call.method.name}": call for call in calls}, gate)


class _Service(grpc.GenericRpcHandler):
    """The methods of a service by their paths. Who asks is looked at before anything of a request is read."""

    def __init__(self, calls: Mapping[str, _Call], gate: Gate) -> None:
        self._calls = calls
        self._gate = gate
        self._handlers = {path: _handler(call) for path, call in calls.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is not None and self._gate.guard is not None:
            try:
                self._gate.guard.principal_of(_texts(handler_call_details.invocation_metadata))
            except MtsError as error:
                return self._calls[path].refusal(error)
        return handler


def _handler(call: _Call) -> grpc.RpcMethodHandler[Any, Any]:
    """All take streams, also of one request: so it is read when there is room for it, not before we are asked."""
    if call.method.server_streaming:
        return grpc.stream_stream_rpc_method_handler(call.stream, call.read, _write)
    return grpc.stream_unary_rpc_method_handler(
        call.take_stream if call.method.client_streaming else call.answer, call.read, _write
    )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _write(message: Message) -> bytes:
    return message.SerializeToString()


class _LeftError(Exception):
    """The client is gone, and what was meant for it."""


async def _write_to(context: Context, message: Message) -> None:
    try:
        await context.write(message)
    except Exception as error:  # gRPC has no public name for a message that could not be sent
        raise _LeftError from error


class _Unreadable:
    """What came in place of a request."""


class _Call:
    """One method of a service."""

    def __init__(self, method: MethodDescriptor, behaviour: Callable[..., Any], gate: Gate) -> None:
        self.method = method
        self._name = method.full_name
        self._behaviour = behaviour
        self._gate = gate
        self._request = GetMessageClass(method.input_type)
        self._response = GetMessageClass(method.output_type)
        self._fields = method.output_type.fields_by_name

    def read(self, body: bytes) -> Message | _Unreadable:
        """Reading must not fail: gRPC would answer that something unexpected has happened."""
        try:
            return self._request.FromString(body)
        except DecodeError:
            return _Unreadable()

    async def _first(self, context: Context) -> Any:
        """The request of a call, or the first of a stream; EOF if there is none. How much memory those take that are
        not complete is not the clients' choice."""
        async with self._gate.reading:
            try:
                async with asyncio.timeout(SILENCE):
                    request = await context.read()
            except TimeoutError:
                raise MtsError("request_timeout", f"the request did not come within {SILENCE:g} s") from None
        _must_be_readable(request)
        return request

    async def _one(self, context: Context) -> Any:
        request = await self._first(context)
        if request is grpc.aio.EOF:
            raise bad_request("a call has a request")
        return request

    async def answer(self, _requests: object, context: Context) -> Any:
        with _Measured(self._name, self._gate) as measured:
            try:
                return await self._behaviour(await self._one(context), context)
            except Exception as error:
                return await self._refuse(measured.failed(error), context)

    async def take_stream(self, requests: AsyncIterator[Any], context: Context) -> Any:
        with _Measured(self._name, self._gate) as measured:
            try:
                return await self._behaviour(_readable(await self._first(context), requests), context)
            except Exception as error:
                return await self._refuse(measured.failed(error), context)

    async def stream(self, _requests: object, context: Context) -> None:
        """Each answer is asked for when the one before is out of our hands: a slow reader is waited for."""
        with _Measured(self._name, self._gate) as measured:
            try:
                async with aclosing(self._behaviour(await self._one(context), context)) as responses:
                    async for response in responses:
                        await _write_to(context, response)
                        del response  # not to be held while the next one is waited for
                        measured.began_to_answer()
            except _LeftError:
                measured.left()
            except Exception as error:
                await context.write(await self._refuse(measured.failed(error), context))

    def refusal(self, error: MtsError) -> grpc.RpcMethodHandler[Any, Any]:
        """For a call that is not let in: as a stream, of which nothing is read."""

        async def refuse(_requests: object, context: Context) -> None:
            with _Measured(self._name, self._gate) as measured:
                await self._refuse(measured.failed(error), context)

        return grpc.stream_stream_rpc_method_handler(refuse)

    async def _refuse(self, error: MtsError, context: Context) -> Any:
        """The answer that tells of the error; or the call ends here with a status."""
        trailer: tuple[tuple[str, str], ...] = ((ERROR_CODE, error.code),)
        if "sequence" in error.details:
            trailer += ((ERROR_SEQUENCE, str(error.details["sequence"])),)
        code = answer_code(error)
        if self._gate.told is Told.ALL_IN_ANSWER and error.code != "unauthorized":
            code = code or 1
        if self._gate.told is not Told.UNKNOWN and code is not None:
            context.set_trailing_metadata(trailer)
            if "status_code" in self._fields:
                return self._response(status_code=code, error_message=error.message)
            if "error" in self._fields:
                return self._response(error={"code": code, "message": error.message})
        status = grpc_status(error)
        if self._gate.told is Told.UNKNOWN and error.code not in {"unauthorized", "unavailable"}:
            status = "UNKNOWN"
        return await context.abort(grpc.StatusCode[status], error.message, trailer)


def metadata_of(context: Context) -> Mapping[str, str]:
    return _texts(context.invocation_metadata())


def _texts(metadata: object) -> Mapping[str, str]:
    sent: Sequence[tuple[str, str | bytes]] = metadata or ()  # type: ignore[assignment]
    return {name: value for name, value in sent if isinstance(value, str)}


def _must_be_readable(request: object) -> None:
    if isinstance(request, _Unreadable):
        raise bad_request("the message cannot be read: its fields do not fit, or a text in it is not valid UTF-8")


async def _readable(first: Any, others: AsyncIterator[Any]) -> AsyncIterator[Any]:
    if first is grpc.aio.EOF:
        return
    yield first
    del first  # not to be held while the others come
    async for request in others:
        _must_be_readable(request)
        yield request


class _Measured:
    """Counts a call when it has ended, and logs what is our fault."""

    def __init__(self, name: str, gate: Gate) -> None:
        self._name = name
        self._gate = gate
        self._began = perf_counter()
        self._status = 200
        self._seconds = 0.0
        request_id.set(gate.new_id())  # of this call's task alone

    def __enter__(self) -> _Measured:
        return self

    def began_to_answer(self) -> None:
        """A stream's time is that of its first answer: a subscription may last for days."""
        self._seconds = self._seconds or perf_counter() - self._began

    def left(self) -> None:
        """Before its answer was complete; or its deadline passed."""
        self._status = 499

    def failed(self, error: Exception) -> MtsError:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if not isinstance(error, MtsError):
            _log.error("%s failed", self._name, exc_info=error)
            error = MtsError("internal", "something went wrong on our side; the log says more")
        self._status = http_status(error)
        if self._status >= 500:
            _log.warning("%s: %s: %s", self._name, error.code, error.message)
        return error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.left()
        self._gate.count(self._name, self._status, self._seconds or perf_counter() - self._began)
