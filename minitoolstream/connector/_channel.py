"""A gRPC channel whose failures are MtsErrors, and which tries again what may be tried again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from minitoolstream.connector._address import target_of
from minitoolstream.connector._stubs import Stub
from minitoolstream.connector._wires import Options
from minitoolstream.domain.errors import MtsError
from minitoolstream.pb.names import ERROR_CODE, ERROR_SEQUENCE

_CODES = {
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.UNAUTHENTICATED: "unauthorized",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too_large",
    grpc.StatusCode.CANCELLED: "closed",
    grpc.StatusCode.UNIMPLEMENTED: "method_not_allowed",
}
_OTHER_PORT = (
    "this server does not know the call: publishing and reading have an address each, 50051 and 50052 as a rule"
)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PING_MS, _PING_TIMEOUT_MS = 20_000, 10_000
_log = logging.getLogger(__name__)
Metadata = Sequence[tuple[str, str]]


class Channel:
    """One server. Calls are tried for `timeout` seconds together, as long as it is away or has too much to do."""

    def __init__(self, address: str, options: Options, service: ServiceDescriptor) -> None:
        arguments = [*_arguments(), *options.grpc_options]
        target = target_of(address, options)
        if target.tls:
            credentials = options.credentials or grpc.ssl_channel_credentials()
            self._channel = grpc.secure_channel(target.address, credentials, arguments)
        else:
            self._channel = grpc.insecure_channel(target.address, arguments)
        self.stub: Any = Stub(self._channel, service)
        self.metadata: Metadata = (("authorization", f"Bearer {target.token}"),) if target.token else ()
        self._timeout = options.timeout
        self._closed = Event()

    def call(self, method: Callable[..., Any], request: Any, more: Metadata = ()) -> Any:
        """The answer; what is wrong, in it (`details.answer`) or in its place, is an MtsError."""
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.001)
                answer, call = method.with_call(  # type: ignore[attr-defined]
                    request, timeout=left, metadata=(*self.metadata, *more)
                )
                if getattr(answer, "status_code", 0):  # a batch tells of each message
                    told = _told(call.trailing_metadata())
                    raise MtsError(told.get(ERROR_CODE, "bad_request"), answer.error_message, {"answer": answer})
                return answer
            except grpc.RpcError as failure:
                error = error_of(failure)
                if error.code == "closed" and not self._closed.is_set():  # by a server that stops
                    error = MtsError("unavailable", error.message)
            seconds = random.uniform(0, pause)  # noqa: S311  # nosec B311 - so that not all come back at once
            if not error.retryable or time.monotonic() + seconds > deadline or self._closed.wait(seconds):
                raise error
            if pause == _FIRST_PAUSE:
                _log.warning("%s; trying again for %g s", error.message, self._timeout)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        self._closed.set()
        self._channel.close()


def _arguments() -> Sequence[tuple[str, int]]:
    """A connection that is cut without a word, as networks do it, is noticed by a ping that is not answered."""
    return [
        ("grpc.max_receive_message_length", -1),
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),  # which ends a silent one in fact (1.85)
        ("grpc.http2.max_pings_without_data", 0),  # else they end while a subscription has nothing to tell
    ]


def error_of(failure: grpc.RpcError) -> MtsError:
    """`details.sequence` where the server named a message."""
    status, message, told = failure.code(), failure.details() or "", _told(failure.trailing_metadata())
    code = told.get(ERROR_CODE) or _CODES.get(status, "internal")
    if ERROR_CODE not in told:
        if status is grpc.StatusCode.UNIMPLEMENTED:
            message = _OTHER_PORT
        elif status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger" not in message:
            code = "overloaded"  # in gRPC's own words: more calls than a server takes
    details = {"sequence": int(told[ERROR_SEQUENCE])} if ERROR_SEQUENCE in told else {}
    return MtsError(code, message or status.name, details)


def _told(trailer: Any) -> dict[str, str]:
    return dict(trailer or ())
