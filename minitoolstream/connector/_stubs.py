"""A service's methods on a channel, made from its description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


class Stub:
    """`stub.Publish(request, timeout=5)`; on a channel of `grpc.aio`, to be awaited."""

    def __init__(self, channel: Any, service: ServiceDescriptor) -> None:
        self._calls = {method.name: _call(channel, service, method) for method in service.methods}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self._calls[name]
        except KeyError:
            raise AttributeError(name) from None


def _call(channel: Any, service: ServiceDescriptor, method: MethodDescriptor) -> Callable[..., Any]:
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    if method.server_streaming:
        make = channel.unary_stream
    elif method.client_streaming:
        make = channel.stream_unary
    else:
        make = channel.unary_unary
    made: Callable[..., Any] = make(
        f"/{service.full_name}/{method.name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    return made
