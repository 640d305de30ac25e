"""The services of the specification, on fakes: shapes, errors, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from tests.grpc_kit import GrpcKit, grpc_kit


@pytest.fixture
async def kit() -> AsyncIterator[GrpcKit]:
    async with grpc_kit() as made:
        yield made


async def publish(kit: GrpcKit, data: bytes = b"x", subject: str = "orders", **headers: str) -> Any:
    answer = await kit.clients.ingress.Publish(ingress.PublishRequest(subject=subject, data=data, headers=headers))
    assert answer.status_code == 0, answer.error_message
    return answer


async def fetch(kit: GrpcKit, start: int = 0, limit: int = 100, subject: str = "orders") -> Any:
    return await kit.clients.egress.Fetch(egress.FetchRequest(subject=subject, start_sequence=start, limit=limit))


async def test_what_was_published_is_fetched(kit: GrpcKit) -> None:
    first = await publish(kit, b"one", **{"content-type": "text/plain", "Kind": "", "kind": "a"})
    second = await publish(kit, b"")
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.object_name in kit.kit.payloads.objects

    answer = await fetch(kit)
    assert [(message.sequence, message.subject, message.data) for message in answer.messages] == [
        (1, "orders", b"one"),
        (2, "orders", b""),
    ]
    assert dict(answer.messages[0].headers) == {
        "content-type": "text/plain",
        "Kind": "",
        "kind": "a",
        "data-size": "3",
    }
    assert answer.messages[0].create_at > 0


async def test_an_empty_subject_is_told_in_the_words_of_the_specification(kit: GrpcKit) -> None:
    answer = await kit.clients.ingress.Publish(ingress.PublishRequest(data=b"test"))
    assert (answer.status_code, answer.error_message) == (1, "subject cannot be empty")
    for call, request in (
        (kit.clients.egress.Fetch, egress.FetchRequest()),
        (kit.clients.egress.GetLatestSequence, egress.GetLatestSequenceRequest()),
        (kit.clients.egress.UpdateConsumerPosition, egress.UpdateConsumerPositionRequest(durable_name="d")),
    ):
        answer = await call(request)
        assert (answer.status_code, answer.error_message) == (1, "subject cannot be empty")
    stream = kit.clients.egress.Subscribe(egress.SubscribeRequest())
    assert [answer.error async for answer in stream] == [egress.Error(code=1, message="subject cannot be empty")]


async def test_what_is_wrong_with_a_request_changes_nothing(kit: GrpcKit) -> None:
    headers = {f"h{n}": "v" for n in range(65)}
    for request in (
        ingress.PublishRequest(subject="a/b", data=b"x"),
        ingress.PublishRequest(subject="orders", data=b"x", headers=headers),
        ingress.PublishRequest(subject="orders", data=b"x", headers={"": "v"}),
        ingress.PublishRequest(subject="orders", data=b"x", headers={"h": "v" * 20_000}),
    ):
        call = kit.clients.ingress.Publish(request)
        assert (await call).status_code == 1
        assert dict(await call.trailing_metadata()) == {"mts-error-code": "bad_request"}
    assert (await fetch(kit, limit=-1)).status_code == 1
    assert (await fetch(kit, start=2**63)).status_code == 1
    assert kit.kit.payloads.objects == {}


async def test_headers_that_are_not_utf8_are_refused_with_a_reason(kit: GrpcKit) -> None:
    body = ingress.PublishRequest(subject="orders", headers={"name": "vXlue"}).SerializeToString()
    raw = kit.clients.channels[0].unary_unary(
        "/minitoolstream.v1.IngressService/Publish", None, ingress.PublishResponse.FromString
    )
    answer = await raw(body.replace(b"X", b"\xff"), metadata=(("authorization", "Bearer a-token-for-the-tests"),))
    assert answer.status_code == 1
    assert "UTF-8" in answer.error_message


async def test_without_the_token_nothing_is_answered(kit: GrpcKit) -> None:
    for call in (
        kit.open.ingress.Publish(ingress.PublishRequest(subject="orders")),
        kit.open.egress.Fetch(egress.FetchRequest(subject="orders")),
        kit.open.ingress.Publish(
            ingress.PublishRequest(subject="orders"), metadata=(("authorization", "Bearer other"),)
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        [_ async for _ in kit.open.egress.Subscribe(egress.SubscribeRequest(subject="orders"))]
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_part_that_is_away_is_a_status(kit: GrpcKit) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise MtsError("unavailable", "the object store is away")

    kit.kit.payloads.put_fresh = away  # type: ignore[method-assign]
    call = kit.clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=b"x"))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert raised.value.details() == "the object store is away"


async def test_a_defect_is_a_status_that_tells_nothing_of_us(kit: GrpcKit) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("a secret of ours")

    kit.kit.core.metadata.latest_sequence = broken  # type: ignore[method-assign]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await kit.clients.egress.GetLatestSequence(egress.GetLatestSequenceRequest(subject="orders"))
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (raised.value.details() or "")


async def test_a_message_that_is_too_large_names_the_way_for_large_ones() -> None:
    async with grpc_kit(server__inline_limit=64 * KIB) as kit:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await publish(kit, b"x" * (64 * KIB + 1))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "PublishStream" in (raised.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await publish(kit, b"x" * 5 * MIB)  # more than the server reads at all
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_fetch_brings_what_fits_and_names_download_for_what_never_does() -> None:
    async with grpc_kit(grpc__message_limit=64 * KIB) as kit:
        for size in (30 * KIB, 20 * KIB, 20 * KIB, 62 * KIB, 100 * KIB):
            await publish(kit, b"x" * size)
        start = 1
        pages: list[list[int]] = []
        while len(pages) < 3:
            messages = (await fetch(kit, start)).messages
            pages.append([message.sequence for message in messages])
            start = messages[-1].sequence + 1
        assert pages == [[1, 2], [3], [4]]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await fetch(kit, 5)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "message 5" in (raised.value.details() or "")
        assert "Download" in (raised.value.details() or "")


async def test_a_batch_has_a_result_for_each_message(kit: GrpcKit) -> None:
    wanted = [("a", b"1"), ("", b"2"), ("b", b"3"), ("a", b"4")]
    request = ingress.PublishBatchRequest(
        messages=[ingress.PublishRequest(subject=subject, data=data) for subject, data in wanted]
    )
    answer = await kit.clients.ingress.PublishBatch(request)
    assert (answer.total_count, answer.success_count, answer.error_count) == (4, 3, 1)
    assert [result.status_code for result in answer.results] == [0, 1, 0, 0]
    assert answer.results[1].error_message == "subject cannot be empty"
    assert [message.data for message in (await fetch(kit, subject="a")).messages] == [b"1", b"4"]
    nothing = await kit.clients.ingress.PublishBatch(ingress.PublishBatchRequest())
    assert nothing.total_count == 0


async def test_a_retry_with_the_same_key_is_published_once(kit: GrpcKit) -> None:
    request = ingress.PublishRequest(subject="orders", data=b"x")
    key = (("idempotency-key", "k-1"),)
    first = await kit.clients.ingress.Publish(request, metadata=key)
    again = await kit.clients.ingress.Publish(request, metadata=key)
    assert again == first
    other = await kit.clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=b"y"), metadata=key)
    assert other.status_code == 422

    async def expired(_sequence: int) -> None:
        return None

    kit.kit.core.metadata.get_message = expired  # type: ignore[method-assign,assignment]
    late = await kit.clients.ingress.Publish(request, metadata=key)
    assert (late.status_code, late.sequence, late.object_name) == (0, first.sequence, "")


async def test_a_batch_that_is_sent_again_with_its_key_is_published_once(kit: GrpcKit) -> None:
    request = ingress.PublishBatchRequest(
        messages=[ingress.PublishRequest(subject=subject, data=b"x") for subject in ("a", "a", "b")]
    )
    key = (("idempotency-key", "k-1"),)
    first = await kit.clients.ingress.PublishBatch(request, metadata=key)
    assert await kit.clients.ingress.PublishBatch(request, metadata=key) == first
    assert [result.sequence for result in first.results] == [1, 2, 3]
    assert len((await fetch(kit, subject="a")).messages) == 2


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_batch_of_which_a_part_could_not_be_stored(kit: GrpcKit, keyed: bool) -> None:
    """With a key it may be sent again as a whole, and that is what its sender is told."""
    commit = kit.kit.core.metadata.commit_pack

    async def away_for_some(name: str, groups: Any, **more: Any) -> Any:
        if any(group.subject == "b" for group in groups):
            raise MtsError("unavailable", "Tarantool is away")
        return await commit(name, groups, **more)

    kit.kit.core.metadata.commit_pack = away_for_some  # type: ignore[method-assign,assignment]
    large = b"x" * MIB
    messages = [ingress.PublishRequest(subject=subject, data=large) for subject in ("a", "b", "b")]
    metadata = (("idempotency-key", "k-1"),) if keyed else ()
    for subject in "ab":
        kit.kit.core.packer.writer.retention.learn(subject, f"class of {subject}")  # so that they are packed apart
    call = kit.clients.ingress.PublishBatch(ingress.PublishBatchRequest(messages=messages), metadata=metadata)
    if keyed:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    else:
        answer = await call
        assert [result.status_code for result in answer.results] == [0, 503, 503]
    kit.kit.core.metadata.commit_pack = commit  # type: ignore[method-assign]
    if keyed:
        again = await kit.clients.ingress.PublishBatch(
            ingress.PublishBatchRequest(messages=messages), metadata=metadata
        )
        assert again.success_count == 3
        assert len((await fetch(kit, subject="a")).messages) == 1


async def test_a_batch_of_which_nothing_could_be_stored_is_a_status(kit: GrpcKit) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise MtsError("unavailable", "the object store is away")

    kit.kit.payloads.put_fresh = away  # type: ignore[method-assign]
    messages = [ingress.PublishRequest(subject="a"), ingress.PublishRequest(subject="")]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await kit.clients.ingress.PublishBatch(ingress.PublishBatchRequest(messages=messages))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_latest_sequence_of_a_subject_without_messages_is_0(kit: GrpcKit) -> None:
    latest = kit.clients.egress.GetLatestSequence
    assert (await latest(egress.GetLatestSequenceRequest(subject="orders"))).latest_sequence == 0
    await publish(kit)
    assert (await latest(egress.GetLatestSequenceRequest(subject="orders"))).latest_sequence == 1


async def test_a_subscription_begins_with_a_batch_and_then_tells_of_news(kit: GrpcKit) -> None:
    for n in range(3):
        await publish(kit, str(n).encode())
    stream = kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders", batch_size=2))
    first = await stream.read()
    assert [message.data for message in first.batch.messages] == [b"0", b"1"]
    second = await stream.read()
    assert second.notification == egress.Notification(latest_sequence=3, new_messages_count=1)
    await publish(kit)
    third = await stream.read()
    assert third.notification == egress.Notification(latest_sequence=4, new_messages_count=1)
    stream.cancel()


async def test_a_subscription_to_nothing_begins_with_an_empty_batch(kit: GrpcKit) -> None:
    stream = kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
    assert (await stream.read()).batch == egress.MessageBatch()
    await publish(kit)
    assert (await stream.read()).notification.latest_sequence == 1
    stream.cancel()


async def test_a_stopping_server_sends_its_readers_elsewhere(kit: GrpcKit) -> None:
    stream = kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
    await stream.read()
    kit.kit.core.draining.set()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stream.read()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_deadline_ends_the_work(kit: GrpcKit) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any, **__: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    kit.kit.core.metadata.latest_sequence = slow  # type: ignore[method-assign]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await kit.clients.egress.GetLatestSequence(egress.GetLatestSequenceRequest(subject="orders"), timeout=0.2)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert begun.is_set()
    await asyncio.wait_for(ended.wait(), 10)


async def test_a_subscription_that_is_cancelled_leaves_nothing_behind(kit: GrpcKit) -> None:
    stream = kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
    await stream.read()
    watched = kit.kit.core.watcher._watched
    async with asyncio.timeout(10):
        while not watched:  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.01)
        stream.cancel()
        while watched:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_subject_that_is_not_read_holds_up_nobody(kit: GrpcKit) -> None:
    """Many subscriptions that nobody reads: the server waits for each, and serves the others."""
    streams = [kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders")) for _ in range(50)]
    for n in range(100):
        await publish(kit, str(n).encode())
    assert len((await fetch(kit)).messages) == 100
    for stream in streams:
        stream.cancel()


async def test_a_connection_carries_as_many_calls_as_the_setting_says() -> None:
    async with grpc_kit(grpc__max_concurrent_streams=1) as kit:
        stream = kit.clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
        await stream.read()
        asked = egress.FetchRequest(subject="orders")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await kit.clients.egress.Fetch(asked, timeout=0.3)
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        stream.cancel()
        assert (await kit.clients.egress.Fetch(asked)).status_code == 0
