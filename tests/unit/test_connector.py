"""What needs no server: preparers, builders, handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.connector import (
    ByteMessagePreparer,
    FileMessagePreparer,
    ImageMessagePreparer,
    JSONMessagePreparer,
    MtsError,
    Publisher,
    PublisherBuilder,
    PublishResult,
    StringMessagePreparer,
    Subscriber,
)
from minitoolstream.connector._grpc_ingress import GrpcIngress
from minitoolstream.connector._http import HttpEgress, HttpIngress
from minitoolstream.connector._types import Prepared
from minitoolstream.connector._wires import Options
from minitoolstream.domain.limits import MIB
from minitoolstream.pb import ingress_v1_pb2 as pb
from tests.grpc_kit import TOKEN, grpc_kit

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class Order:
    id: str
    amount: float


def test_each_preparer_knows_the_type_and_size_of_what_it_prepares(tmp_path: Path) -> None:
    picture, page = tmp_path / "picture.dat", tmp_path / "page.html"
    picture.write_bytes(PNG)
    page.write_text("<html>")
    prepared = [
        ByteMessagePreparer("s", b"abc").prepare(),
        StringMessagePreparer("s", "ü").prepare(),
        JSONMessagePreparer("s", Order("7", 1.5)).prepare(),
        FileMessagePreparer("s", page).prepare(),
        ImageMessagePreparer("s", picture).prepare(),
    ]
    assert [(one.content_type, one.headers["data-size"]) for one in prepared] == [
        ("application/octet-stream", "3"),
        ("text/plain; charset=utf-8", "2"),
        ("application/json", "23"),
        ("text/html", "6"),
        ("image/png", "28"),
    ]
    assert prepared[2].data == b'{"id":"7","amount":1.5}'
    assert prepared[4].headers["file-name"] == "picture.dat"


def test_a_type_that_the_caller_gives_counts() -> None:
    prepared = ByteMessagePreparer("s", b"{}", {"Content-Type": "application/json", "a": "b"}).prepare()
    assert prepared.content_type == "application/json"
    assert prepared.headers == {"a": "b", "data-size": "2"}


def test_what_cannot_be_prepared_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no picture")
    for preparer in (
        FileMessagePreparer("s", tmp_path / "missing"),
        FileMessagePreparer("s", tmp_path),
        ImageMessagePreparer("s", text),
        JSONMessagePreparer("s", object()),
    ):
        with pytest.raises(MtsError):
            preparer.prepare()


def test_a_subscriber_is_started_once_and_with_handlers() -> None:
    subscriber = Subscriber("http://127.0.0.1:1", "d")
    with pytest.raises(MtsError, match="register a handler first"):
        subscriber.start()
    with pytest.raises(MtsError, match="neither"):
        subscriber.register_handler("s", "no handler")  # type: ignore[arg-type]
    subscriber.stop()
    with pytest.raises(MtsError, match="starts once"):
        subscriber.start()


@pytest.mark.parametrize("headers", [{"n": 3}, {"n": "\udcff"}, {"": "x"}])
def test_headers_that_cannot_be_sent_fail_alone(headers: Any) -> None:
    publisher = Publisher("localhost:1", options=Options(token="t"))
    wire: Any = SimpleNamespace(
        publish=lambda _prepared: PublishResult(7), publish_all=lambda prepared: [PublishResult(7)] * len(prepared)
    )
    publisher._wire = wire
    wrong = StringMessagePreparer("orders", "x", headers)
    failed, published = publisher.publish_all([wrong, StringMessagePreparer("orders", "x")])
    assert (failed.error and failed.error.code, published.sequence) == ("bad_request", 7)
    with pytest.raises(MtsError):
        publisher.publish(wrong)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"poll_interval": -1.0}])
def test_a_subscriber_takes_no_impossible_numbers(wrong: Any) -> None:
    with pytest.raises(MtsError, match="at least 1"):
        Subscriber("localhost:1", "d", options=Options(token="t"), **wrong)


async def test_a_builder_passes_on_its_channel_options_and_its_logger(caplog: pytest.LogCaptureFixture) -> None:
    message = StringMessagePreparer("orders", "more than ten bytes")
    async with grpc_kit() as kit:
        builder = PublisherBuilder(kit.addresses[0]).with_token(TOKEN).with_logger(logging.getLogger("mine"))
        builder = builder.with_grpc_options(("grpc.max_send_message_length", 10))
        with builder.build() as publisher, pytest.raises(MtsError) as raised:
            await asyncio.to_thread(publisher.publish, message)
    assert raised.value.code == "too_large"
    assert [record.name for record in caplog.records] == ["mine"]


def test_an_upload_whose_receipt_does_not_come_is_named() -> None:
    """It may be published all the same, once a server is back."""

    def call(method: str, _request: object) -> pb.IssueTicketResponse:
        if method == "IssueTicket":
            return pb.IssueTicketResponse(upload_id="u-1")
        raise MtsError("unavailable", "the server is away")

    ingress: Any = GrpcIngress("localhost:1", Options(token="t"), presigned_above=0)
    ingress._channel = SimpleNamespace(
        stub=SimpleNamespace(IssueTicket="IssueTicket", GetReceipt="GetReceipt"), call=call
    )
    with pytest.raises(MtsError) as raised:
        ingress.publish(Prepared("orders", b"large"))
    assert (raised.value.code, raised.value.details) == ("unavailable", {"upload_id": "u-1"})


def test_a_file_that_is_gone_fails_alone(tmp_path: Path) -> None:
    """Between its preparation and its turn."""
    ingress: Any = GrpcIngress("localhost:1", Options(token="t"), 3 * MIB)
    ingress._channel = SimpleNamespace(
        stub=SimpleNamespace(Publish=None, PublishBatch=None),
        call=lambda _method, request, _key: pb.PublishResponse(sequence=len(request.data)),
    )
    there, gone = tmp_path / "there", tmp_path / "gone"
    there.write_bytes(b"12345")
    messages = [Prepared("orders", gone), Prepared("orders", there)]
    failed, published = ingress.publish_all(messages)
    assert failed.error.code == "bad_request"
    assert str(gone) in failed.error.message
    assert published.sequence == 5


def test_a_message_that_is_published_over_http_is_so_although_its_object_is_not_told() -> None:
    """An error would have its publisher publish it again."""

    def away(_sequence: int) -> None:
        raise MtsError("unavailable", "the server is away")

    ingress: Any = HttpIngress("http://127.0.0.1:1", Options(token="t"), 3 * MIB)
    ingress._client = SimpleNamespace(publish=lambda *_, **__: SimpleNamespace(sequence=7), get=away)
    assert ingress.publish(Prepared("orders", b"x")) == PublishResult(7, "")


def test_a_stop_that_comes_while_a_subscription_opens_is_not_lost() -> None:
    """Nobody would wake it a second time: on a subject without messages it would wait for ever."""
    egress: Any = HttpEgress("http://127.0.0.1:1", Options(token="t"))
    stop, read = threading.Event(), []

    class Opening:
        def stop(self) -> None:
            pytest.fail("it is not known yet")

        def __iter__(self) -> Iterator[object]:
            read.append("and waits")
            return iter(())

    @contextmanager
    def subscribe(*_: object, **__: object) -> Iterator[Opening]:
        stop.set()
        egress.wake()
        yield Opening()

    egress._client = SimpleNamespace(subscribe=subscribe)
    egress.follow("orders", "d", 10, lambda _message: True, stop)
    assert not read
    egress.wake()  # what has ended is not woken
