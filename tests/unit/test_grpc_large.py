"""Payloads that do not fit into one gRPC message, on fakes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import grpc
import pytest

from minitoolstream.domain.limits import KIB, MIB
from minitoolstream.domain.upload import State
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from tests.grpc_kit import GrpcKit, grpc_kit


@pytest.fixture
async def kit() -> AsyncIterator[GrpcKit]:
    async with grpc_kit(uploads__part_size=5 * MIB) as made:
        yield made


PAYLOAD = bytes(range(256)) * (12 * MIB // 256) + b"the end"


def stream_of(
    payload: bytes, upload: ingress.Upload | None, chunk: int = MIB
) -> Iterator[ingress.PublishStreamRequest]:
    if upload is not None:
        yield ingress.PublishStreamRequest(upload=upload)
    for first in range(0, len(payload), chunk):
        yield ingress.PublishStreamRequest(data=payload[first : first + chunk])


async def send(kit: GrpcKit, requests: Iterable[ingress.PublishStreamRequest]) -> Any:
    return await kit.clients.ingress.PublishStream(iter(requests))


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not check():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.01)


async def download(kit: GrpcKit, sequence: int, **span: int) -> tuple[list[Any], bytes]:
    """What came before the bytes, and the bytes."""
    answers = kit.clients.egress.Download(egress.DownloadRequest(sequence=sequence, **span))
    found = [answer async for answer in answers]
    return [one for one in found if one.WhichOneof("piece") != "data"], b"".join(one.data for one in found)


async def test_a_stream_of_a_named_producer_is_published_once(kit: GrpcKit) -> None:
    upload = ingress.Upload(subject="films", size=3, producer_id="camera", seqno=1)
    first = await send(kit, stream_of(b"abc", upload))
    assert first.object_name
    assert await send(kit, stream_of(b"abc", upload)) == first


@pytest.mark.parametrize("size", [0, 1, 300 * KIB, 5 * MIB, 5 * MIB + 1, len(PAYLOAD)])
async def test_a_stream_of_any_size_is_published_and_downloaded(kit: GrpcKit, size: int) -> None:
    payload = PAYLOAD[:size]
    digest = hashlib.sha256(payload).hexdigest()
    upload = ingress.Upload(subject="films", size=size, sha256=digest, headers={"content-type": "video/mp4", "a": "b"})
    answer = await send(kit, stream_of(payload, upload))
    assert (answer.status_code, answer.error_message, answer.sequence) == (0, "", 1)
    assert kit.kit.payloads.objects[answer.object_name].body == payload

    (first,), came = await download(kit, 1)
    assert came == payload
    assert (first.info.size, first.info.sha256) == (size, digest)
    headers = {"content-type": "video/mp4", "a": "b", "data-size": str(size)}
    assert dict(first.info.message.headers) == headers


@pytest.mark.parametrize(
    ("upload", "payload", "reason"),
    [
        (ingress.Upload(subject="films", size=10), b"x" * 9, "9 bytes came, and 10 were announced"),
        (ingress.Upload(subject="films", size=10), b"x" * 11, "more came than the 10 bytes"),
        (ingress.Upload(subject="films", size=6 * MIB), b"x" * 7 * MIB, "more came than the"),
        (ingress.Upload(subject="films", size=1, sha256="0" * 64), b"x", "SHA-256"),
        (ingress.Upload(subject="films", size=1, sha256="f"), b"x", "64 lower-case hex digits"),
        (ingress.Upload(subject="", size=1), b"x", "subject cannot be empty"),
        (ingress.Upload(subject="films", size=1, seqno=1), b"x", "need a producer_id"),
        (None, b"x", "begins with its `upload`"),
        (None, b"", "begins with its `upload`"),
    ],
)
async def test_a_stream_that_is_not_as_announced_leaves_nothing(
    kit: GrpcKit, upload: ingress.Upload | None, payload: bytes, reason: str
) -> None:
    answer = await send(kit, stream_of(payload, upload))
    assert answer.status_code == 1
    assert reason in answer.error_message
    assert kit.kit.payloads.objects == {}
    assert await kit.kit.metadata.latest_sequence("films") == 0


async def test_a_second_announcement_in_a_stream_is_refused(kit: GrpcKit) -> None:
    upload = ingress.Upload(subject="films", size=2)
    answer = await send(kit, [*stream_of(b"x", upload), *stream_of(b"x", upload)])
    assert (answer.status_code, answer.error_message) == (1, "a stream has one `upload`, its first message")


async def test_a_cancelled_stream_leaves_nothing(kit: GrpcKit) -> None:
    sent = asyncio.Event()

    async def requests() -> AsyncIterator[ingress.PublishStreamRequest]:
        for request in stream_of(PAYLOAD[: 6 * MIB], ingress.Upload(subject="films", size=len(PAYLOAD))):
            yield request
        sent.set()
        await asyncio.Event().wait()

    call = kit.clients.ingress.PublishStream(requests())
    await sent.wait()
    uploads = kit.kit.metadata.uploads.rows
    await until(lambda: len(uploads) == 1)
    call.cancel()
    await until(lambda: [row.state for row in uploads.values()] == [State.ABORTED])
    assert kit.kit.payloads.objects == {}


async def test_a_range_of_a_payload_is_downloaded(kit: GrpcKit) -> None:
    await send(kit, stream_of(PAYLOAD, ingress.Upload(subject="films", size=len(PAYLOAD))))
    await kit.clients.ingress.Publish(ingress.PublishRequest(subject="films", data=b"0123456789"))
    assert (await download(kit, 1, offset=3 * MIB - 5, length=2 * MIB))[1] == PAYLOAD[3 * MIB - 5 : 5 * MIB - 5]
    assert (await download(kit, 1, offset=len(PAYLOAD) - 3))[1] == b"end"
    assert (await download(kit, 1, offset=len(PAYLOAD)))[1] == b""
    assert (await download(kit, 2, offset=2, length=3))[1] == b"234"


async def test_a_download_that_cannot_be_is_an_error_in_the_stream(kit: GrpcKit) -> None:
    await kit.clients.ingress.Publish(ingress.PublishRequest(subject="films", data=b"0123456789"))
    (error,), _ = await download(kit, 1, offset=8, length=3)
    assert (error.error.code, error.error.message) == (1, "the payload has 10 bytes: ask for a range within it")
    (error,), _ = await download(kit, 9)
    assert (error.error.code, error.error.message) == (404, "there is no message 9")


async def test_a_ticket_is_issued_and_its_receipt_told(kit: GrpcKit) -> None:
    upload = ingress.Upload(subject="films", size=5, headers={"content-type": "text/plain"})
    ticket = await kit.clients.ingress.IssueTicket(ingress.IssueTicketRequest(upload=upload))
    (put,) = ticket.requests
    assert (put.method, put.part_number, put.size) == ("PUT", 0, 5)
    assert put.headers["content-type"] == "text/plain"
    assert ticket.expires_at > 0

    receipt = kit.clients.ingress.GetReceipt
    told = (await receipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id))).receipt
    assert (told.state, told.sequence) == ("open", 0)
    early = await receipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id, complete=True))
    assert early.status_code == 409
    kit.kit.payloads.client_put(ticket.object_name, b"hello")
    told = (await receipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id, complete=True))).receipt
    assert (told.state, told.sequence) == ("committed", 1)
    assert (await receipt(ingress.GetReceiptRequest(upload_id=ticket.upload_id))).receipt == told


async def test_parts_that_were_not_signed_are_signed_later(kit: GrpcKit) -> None:
    upload = ingress.Upload(subject="films", size=12 * MIB)
    ticket = await kit.clients.ingress.IssueTicket(ingress.IssueTicketRequest(upload=upload))
    assert [request.part_number for request in ticket.requests] == [1, 2, 3]
    assert ticket.next_part == 0
    more = await kit.clients.ingress.IssueTicket(ingress.IssueTicketRequest(upload_id=ticket.upload_id, from_part=3))
    assert [(request.part_number, request.size) for request in more.requests] == [(3, 2 * MIB)]
    wrong = await kit.clients.ingress.IssueTicket(ingress.IssueTicketRequest(upload_id=ticket.upload_id, from_part=9))
    assert wrong.status_code == 1


async def test_wrong_questions_about_uploads_are_answered(kit: GrpcKit) -> None:
    issue, receipt = kit.clients.ingress.IssueTicket, kit.clients.ingress.GetReceipt
    assert (await issue(ingress.IssueTicketRequest())).status_code == 1
    assert (await issue(ingress.IssueTicketRequest(upload_id="x"))).status_code == 1
    assert (await receipt(ingress.GetReceiptRequest(upload_id="x"))).status_code == 1
    unknown = "01900000-0000-7000-8000-000000000000"
    assert (await receipt(ingress.GetReceiptRequest(upload_id=unknown))).status_code == 404
    assert (await receipt(ingress.GetReceiptRequest(upload_id=unknown, wait_seconds=-1))).status_code == 1
    assert (await receipt(ingress.GetReceiptRequest(upload_id=unknown, wait_seconds=float("nan")))).status_code == 1


async def test_more_uploads_than_memory_allows_wait_and_are_told_to_come_back(
    kit: GrpcKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.grpc.slots.WAIT_SECONDS", 0.1)

    async def never() -> AsyncIterator[ingress.PublishStreamRequest]:
        yield ingress.PublishStreamRequest(upload=ingress.Upload(subject="films", size=5))
        await asyncio.Event().wait()

    calls = [kit.clients.ingress.PublishStream(never()) for _ in range(9)]
    done, _ = await asyncio.wait([asyncio.ensure_future(call) for call in calls], return_when="FIRST_COMPLETED")
    error = done.pop().exception()
    assert isinstance(error, grpc.aio.AioRpcError)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for call in calls:
        call.cancel()
