"""A gRPC channel whose failures are MtsErrors, and which tries again what may be tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from minitoolstream.connector._stubs import Stub
from minitoolstream.connector._wires import Options
from minitoolstream.domain.errors import MtsError

ERROR_CODE = "mts-error-code"
_CODES = {
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.UNAUTHENTICATED: "unauthorized",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too_large",
    grpc.StatusCode.CANCELLED: "closed",
}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
Metadata = Sequence[tuple[str, str]]


class Channel:
    """One server. Calls are tried for `timeout` seconds together, as long as it is away or has too much to do."""

    def __init__(self, address: str, options: Options, service: ServiceDescriptor) -> None:
        arguments = [("grpc.max_receive_message_length", -1), *options.grpc_options]
        if options.credentials is None:
            self._channel = grpc.insecure_channel(address, arguments)
        else:
            self._channel = grpc.secure_channel(address, options.credentials, arguments)
        self.stub: Any = Stub(self._channel, service)
        token = options.known_token()
        self.metadata: Metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = options.timeout
        self._closed = Event()

    def call(self, method: Callable[..., Any], request: Any, more: Metadata = ()) -> Any:
        """The answer; what is wrong, in it or in its place, is an MtsError."""
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.001)
                answer, call = method.with_call(  # type: ignore[attr-defined]
                    request, timeout=left, metadata=(*self.metadata, *more)
                )
                if answer.status_code:
                    told = _told(call.trailing_metadata())
                    raise MtsError(told.get(ERROR_CODE, "bad_request"), answer.error_message)
                return answer
            except grpc.RpcError as failure:
                error = error_of(failure)
            seconds = random.uniform(0, pause)  # noqa: S311  # nosec B311 - so that not all come back at once
            if not error.retryable or time.monotonic() + seconds > deadline or self._closed.wait(seconds):
                raise error
            pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        self._closed.set()
        self._channel.close()


def error_of(failure: grpc.RpcError) -> MtsError:
    """`details.sequence` where the server named a message."""
    status, trailer = failure.code(), failure.trailing_metadata()
    told = _told(trailer)
    code = told.get(ERROR_CODE) or _CODES.get(status, "internal")
    details = {"sequence": int(told["mts-sequence"])} if "mts-sequence" in told else {}
    return MtsError(code, failure.details() or status.name, details)


def _told(trailer: Any) -> dict[str, str]:
    return dict(trailer or ())
