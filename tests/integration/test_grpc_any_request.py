"""Whatever a client with a token sends, what is wrong with it is told; nothing of it is a defect of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.grpc_kit import OLD_EGRESS, OLD_INGRESS, V1_EGRESS, V1_INGRESS, GrpcProcess, start_grpc
from tests.live import Live

CALLS = 40
TEXTS = [
    "",
    "a",
    "a/b",
    "..",
    "x" * 300,
    "\0",
    "é" * 100,
    "0" * 64,
    "01a1ee19-848a-70ac-8c78-aeb494d5b85b",
    "gzip",
    "%s",
]
NUMBERS: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_UINT64: [0, 1, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    FieldDescriptor.TYPE_INT32: [0, 1, -1, 1000, -(2**31), 2**31 - 1],
    FieldDescriptor.TYPE_INT64: [0, 1, -1, -(2**63), 2**63 - 1],
    FieldDescriptor.TYPE_DOUBLE: [0, -1, 0.01, 1e308, float("nan"), float("inf")],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_BYTES: [b"", b"x", b"\xff" * 1000],
    FieldDescriptor.TYPE_STRING: TEXTS,
}


@pytest.fixture(scope="module")
def server(live: Live) -> Iterator[GrpcProcess]:
    process = start_grpc(live)
    yield process
    process.stop()


@pytest.mark.parametrize("service", [V1_INGRESS, V1_EGRESS, OLD_INGRESS, OLD_EGRESS], ids=lambda one: one.full_name)
def test_no_request_is_a_defect(server: GrpcProcess, subject: str, service: ServiceDescriptor) -> None:
    chance = random.Random(service.full_name)
    address = server.ingress if service.name == "IngressService" else server.egress
    with grpc.insecure_channel(address) as channel:
        for _ in range(CALLS):
            method = chance.choice(service.methods)
            count = chance.choice([0, 1, 3]) if method.client_streaming else 1
            requests = [any_message(chance, method, subject) for _ in range(count)]
            status, said = called(channel, server.token, method, requests)
            assert status is not grpc.StatusCode.INTERNAL, (method.name, requests, said)
            assert "went wrong on our side" not in said, (method.name, requests)
    assert "Traceback" not in server.log.read_text("utf-8")


def any_message(chance: random.Random, method: MethodDescriptor, subject: str) -> Message:
    message: Message = GetMessageClass(method.input_type)()
    fill(chance, message, subject)
    return message


def fill(chance: random.Random, message: Message, subject: str) -> None:
    """Some of its fields with values at the edges; half of the subjects and durables are good ones."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.25:
            continue
        value: Any = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            for _ in range(chance.choice([0, 1, 70])):
                value[chance.choice(TEXTS) + str(chance.random())] = chance.choice(TEXTS)
        elif field.is_repeated:
            for _ in range(chance.choice([0, 1, 5])):
                fill(chance, value.add(), subject)
        elif field.message_type:
            fill(chance, value, subject)
        elif field.name in {"subject", "durable_name"} and chance.random() < 0.5:
            setattr(message, field.name, subject)
        else:
            setattr(message, field.name, chance.choice(NUMBERS[field.type]))


def called(
    channel: grpc.Channel, token: str, method: MethodDescriptor, requests: list[Message]
) -> tuple[grpc.StatusCode, str]:
    """The status, and all that was said."""
    call: Any = channel.stream_stream(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    try:
        answers = list(call(iter(requests), timeout=0.3, metadata=(("authorization", f"Bearer {token}"),)))
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, str(answers[-1:])
