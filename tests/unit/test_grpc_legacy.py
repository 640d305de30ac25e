"""The older interface, on fakes where it needs no durable: those are Tarantool's, see tests/integration."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.pb import legacy_pb2 as pb
from tests.grpc_kit import GrpcKit, grpc_kit


@pytest.fixture
async def kit() -> AsyncIterator[GrpcKit]:
    async with grpc_kit() as made:
        yield made


async def test_publish_errors_are_in_the_answer_whatever_they_are(kit: GrpcKit) -> None:
    answer = await kit.clients.old_ingress.Publish(pb.PublishRequest(data=b"x"))
    assert (answer.status_code, answer.error_message) == (1, "subject cannot be empty")
    kit.kit.payloads.down = True
    answer = await kit.clients.old_ingress.Publish(pb.PublishRequest(subject="orders", data=b"x"))
    assert answer.status_code != 0
    assert answer.error_message
    assert answer.sequence == 0


async def test_a_defect_is_told_in_the_answer_to_a_publish_and_tells_nothing_of_us(kit: GrpcKit) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("a secret of ours")

    kit.kit.payloads.put_fresh = broken  # type: ignore[method-assign]
    answer = await kit.clients.old_ingress.Publish(pb.PublishRequest(subject="orders", data=b"x"))
    assert answer.status_code == 1
    assert "secret" not in answer.error_message


async def test_egress_errors_are_status_unknown(kit: GrpcKit) -> None:
    last = kit.clients.old_egress.GetLastSequence
    assert (await last(pb.GetLastSequenceRequest(subject="orders"))).last_sequence == 0
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await last(pb.GetLastSequenceRequest())
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.UNKNOWN, "subject cannot be empty")
    for call in (
        kit.clients.old_egress.Fetch(pb.FetchRequest(subject="orders")),
        kit.clients.old_egress.Subscribe(pb.SubscribeRequest(subject="orders")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            [_ async for _ in call]
        assert raised.value.code() is grpc.StatusCode.UNKNOWN
        assert raised.value.details() == "durable_name cannot be empty"


async def test_a_token_is_needed_unless_the_older_interface_is_open(kit: GrpcKit) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await kit.open.old_ingress.Publish(pb.PublishRequest(subject="orders"))
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_open_older_interface_opens_nothing_else() -> None:
    async with grpc_kit(grpc__legacy_open=True) as kit:
        answer = await kit.open.old_ingress.Publish(pb.PublishRequest(subject="orders", data=b"x"))
        assert (answer.status_code, answer.sequence) == (0, 1)
        assert (await kit.open.old_egress.GetLastSequence(pb.GetLastSequenceRequest(subject="orders"))).last_sequence
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await kit.open.ingress.Publish(pb.PublishRequest(subject="orders"))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_durable_that_is_shared_is_not_read_here(kit: GrpcKit) -> None:
    def refuse(*_: object) -> None:
        raise MtsError("mode_mismatch", "a shared durable is read by leases")

    kit.kit.deliveries.answers["get_consumer"] = refuse
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        [_ async for _ in kit.clients.old_egress.Fetch(pb.FetchRequest(subject="orders", durable_name="d"))]
    assert raised.value.code() is grpc.StatusCode.UNKNOWN
    assert "leases" in (raised.value.details() or "")
