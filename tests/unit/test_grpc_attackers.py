"""What somebody who reaches the ports can do to the servers, on fakes: without a token, or without reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.pb import legacy_pb2 as legacy
from tests.grpc_kit import TOKEN, GrpcKit, grpc_kit

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ASKED = health_pb2.HealthCheckRequest()


@pytest.fixture
async def kit() -> AsyncIterator[GrpcKit]:
    async with grpc_kit() as made:
        yield made


@pytest.fixture
async def narrow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrpcKit]:
    """One answer at a time."""
    monkeypatch.setattr("minitoolstream.grpc.egress.ANSWERS_AT_ONCE", 1)
    monkeypatch.setattr("minitoolstream.grpc.slots.WAIT_SECONDS", 0.2)
    async with grpc_kit() as made:
        yield made


async def test_without_the_token_no_request_is_waited_for(kit: GrpcKit) -> None:
    """Else whoever reaches the port would fill the memory with requests that never end."""
    call = kit.open.channels[0].stream_unary("/minitoolstream.v1.IngressService/Publish")(timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
async def test_requests_that_do_not_come_are_few_and_end(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """What is not complete is held in memory: of those with a token, too, no more than a number of them."""
    monkeypatch.setattr("minitoolstream.grpc.servers.READ_AT_ONCE", 1)
    monkeypatch.setattr("minitoolstream.grpc.slots.WAIT_SECONDS", 0.1)
    monkeypatch.setattr("minitoolstream.grpc.calls.SILENCE", 1.0)
    async with grpc_kit() as kit:
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        unsaid = kit.open.channels[0].stream_unary(f"/minitoolstream.v1.IngressService/{method}")
        request = ingress.PublishRequest(subject="orders")
        async with asyncio.timeout(20):
            held = await _one_that_holds_up_others(
                lambda: unsaid(timeout=30, metadata=metadata), lambda: kit.clients.ingress.Publish(request)
            )
            assert await held is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await kit.clients.ingress.Publish(request)).status_code == 0


async def _one_that_holds_up_others(
    unsaid: Callable[[], Any], asked: Callable[[], Any]
) -> asyncio.Task[grpc.StatusCode | None]:
    """What is asked may be there first, and the one that says nothing refused in its place."""
    held = asyncio.create_task(_status_of(unsaid()))
    while await _status_of(asked()) is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        if held.done():
            held = asyncio.create_task(_status_of(unsaid()))
    return held


async def _status_of(call: Any) -> grpc.StatusCode | None:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_questions_after_health_that_do_not_come_are_few_and_end(
    kit: GrpcKit, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Nobody needs a token for them, and each may grow to the largest request there is."""
    monkeypatch.setattr("minitoolstream.grpc.open_to_all.ASKING", 1)
    monkeypatch.setattr("minitoolstream.grpc.open_to_all._ASK_SECONDS", 1.0)
    unsaid = kit.open.channels[0].stream_stream(f"/grpc.health.v1.Health/{method}")
    async with asyncio.timeout(20):
        held = await _one_that_holds_up_others(
            lambda: unsaid(timeout=30).read(), lambda: kit.clients.health.Check(ASKED)
        )
        assert await held is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (await kit.clients.health.Check(ASKED)).status == SERVING


async def test_a_question_after_health_that_cannot_be_read_is_refused(kit: GrpcKit) -> None:
    check = kit.open.channels[0].unary_unary("/grpc.health.v1.Health/Check")
    assert await _status_of(check(b"\xff")) is grpc.StatusCode.INVALID_ARGUMENT
    assert await _status_of(check(b"\x0a\x03abc")) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("path", ["/grpc.health.v1.Health/Check", "/minitoolstream.v1.IngressService/Publish"])
async def test_a_small_message_that_unpacks_to_a_large_one_is_not_unpacked(kit: GrpcKit, path: str) -> None:
    bomb = b"\x0a\x80\x80\x80\x20" + bytes(64 * MIB)
    send = kit.open.channels[0].unary_unary(path)
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    refused = send(bomb, timeout=30, metadata=metadata, compression=grpc.Compression.Gzip)
    assert await _status_of(refused) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in await refused.details()


async def test_metadata_is_small(kit: GrpcKit) -> None:
    call = kit.clients.health.Check(ASKED, metadata=(("x-much", "x" * 64 * KIB),))
    assert await _status_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_not_let_in_is_counted(kit: GrpcKit) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await kit.open.ingress.Publish(ingress.PublishRequest(subject="orders"))
    counted = [
        sample
        for family in kit.metrics.families().collect()
        for sample in family.samples
        if sample.name == "minitoolstream_ingress_requests_total"
    ]
    assert [(sample.labels["status"], sample.value) for sample in counted] == [("401", 1.0)]


async def test_a_watcher_that_does_not_read_holds_up_nobody(kit: GrpcKit) -> None:
    """Its window is so small that no answer fits."""
    shut = (("grpc.http2.lookahead_bytes", 0), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(kit.addresses[0], options=shut) as channel:
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        stalled = watch(b"", timeout=60)
        await stalled.initial_metadata()
        watcher = kit.clients.health.Watch(ASKED)
        assert (await watcher.read()).status == SERVING
        kit.servers[0].tell(serving=False)
        assert (await watcher.read()).status == NOT_SERVING
        watcher.cancel()
        stalled.cancel()


async def test_watchers_do_not_hold_up_a_stop(kit: GrpcKit) -> None:
    watcher = kit.clients.health.Watch(ASKED)
    assert (await watcher.read()).status == SERVING
    async with asyncio.timeout(10):
        stopping = asyncio.create_task(kit.servers[0].stop(60))
        assert (await watcher.read()).status == NOT_SERVING
        assert await watcher.read() is grpc.aio.EOF
        await stopping


async def test_watchers_are_few(kit: GrpcKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those who have no token would take all the calls that a server holds at once."""
    monkeypatch.setattr("minitoolstream.grpc.open_to_all.WATCHERS", 1)
    first = kit.clients.health.Watch(ASKED)
    assert (await first.read()).status == SERVING
    await _refused(kit.clients.health.Watch(ASKED).read())
    first.cancel()


async def test_those_who_ask_for_the_services_are_few(kit: GrpcKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.grpc.open_to_all.CURIOUS", 1)
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(kit.open.channels[0])
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    first = stub.ServerReflectionInfo()
    await first.write(question)
    assert len((await first.read()).list_services_response.service) == 4
    await _refused(stub.ServerReflectionInfo().read())
    first.cancel()


async def test_who_asks_for_nothing_is_sent_away(kit: GrpcKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.grpc.open_to_all._REFLECTION_SECONDS", 0.1)
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(kit.open.channels[0])
    assert await stub.ServerReflectionInfo(timeout=10).read() is grpc.aio.EOF


async def test_answers_that_nobody_takes_are_few(narrow: GrpcKit) -> None:
    """An answer is held until its reader has taken it; the next one waits for that."""
    clients = narrow.clients
    await clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=b"x" * MIB))
    request = egress.FetchRequest(subject="orders")
    as_a_stream = clients.channels[1].unary_stream("/minitoolstream.v1.EgressService/Fetch")
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    untaken = as_a_stream(request.SerializeToString(), timeout=60, metadata=metadata)
    await untaken.initial_metadata()
    await _refused(clients.egress.Fetch(request))
    assert len(await untaken.read()) > MIB
    assert await untaken.read() is grpc.aio.EOF
    assert len((await clients.egress.Fetch(request)).messages) == 1


async def test_the_batch_of_a_subscription_that_nobody_takes_counts_too(narrow: GrpcKit) -> None:
    clients = narrow.clients
    await clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=b"x" * MIB))
    untaken = clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
    await untaken.initial_metadata()
    await _refused(clients.egress.Fetch(egress.FetchRequest(subject="orders")))
    assert len((await untaken.read()).batch.messages) == 1
    assert len((await clients.egress.Fetch(egress.FetchRequest(subject="orders"))).messages) == 1
    untaken.cancel()


async def test_the_older_interface_has_no_places_of_its_own(narrow: GrpcKit) -> None:
    clients = narrow.clients
    await clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=b"x" * MIB))
    narrow.kit.deliveries.answers["get_consumer"] = lambda *_: SimpleNamespace(mode="ordered")
    untaken = clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
    await untaken.initial_metadata()
    fetch = clients.old_egress.Fetch(legacy.FetchRequest(subject="orders", durable_name="d"))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await fetch.read()
    assert "too many reads at once" in (raised.value.details() or "")
    untaken.cancel()


async def _refused(call: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_call_that_fails_gives_its_place_back(narrow: GrpcKit, monkeypatch: pytest.MonkeyPatch) -> None:
    call = narrow.clients.egress.Fetch
    for _ in range(3):
        assert (await call(egress.FetchRequest(subject="orders", start_sequence=2**63))).status_code == 1

    async def stuck(*_: Any) -> Any:
        await asyncio.sleep(60)

    with monkeypatch.context() as patched:
        patched.setattr(narrow.kit.core.metadata, "get_messages", stuck)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(egress.FetchRequest(subject="orders"), timeout=0.2)
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (await call(egress.FetchRequest(subject="orders"))).status_code == 0
