"""Connections that are cut without a word: whoever waits on one notices, on either side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from minitoolstream.connector import Message, Subscriber
from minitoolstream.connector._wires import Options
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from tests.grpc_kit import TOKEN, Clients, GrpcKit, grpc_kit
from tests.relay import Relay


@pytest.fixture
async def kit(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrpcKit]:
    """Pings every second on both sides."""
    monkeypatch.setattr("minitoolstream.grpc.servers._PING_TIMEOUT_MS", 500)
    monkeypatch.setattr("minitoolstream.grpc.servers._LEAST_PING_MS", 100)
    monkeypatch.setattr("minitoolstream.connector._channel._PING_MS", 1000)
    monkeypatch.setattr("minitoolstream.connector._channel._PING_TIMEOUT_MS", 500)
    async with grpc_kit(grpc__keepalive=1.0) as made:
        keep_a_durable(made)
        yield made


def keep_a_durable(kit: GrpcKit) -> None:
    position = 0

    def ack(_subject: str, _durable: str, sequence: int) -> None:
        nonlocal position
        position = sequence

    def known(*_: object) -> SimpleNamespace:
        return SimpleNamespace(last_sequence=position, latest_sequence=position, lag=0, mode="ordered", sessions=0)

    answers: dict[str, Any] = {"ack": ack, "get_consumer": known, "put_consumer": lambda *_: (known(), False)}
    kit.kit.deliveries.answers.update(answers)


async def publish(kit: GrpcKit, data: bytes) -> None:
    assert (await kit.clients.ingress.Publish(ingress.PublishRequest(subject="orders", data=data))).status_code == 0


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


async def test_a_subscriber_whose_connection_is_cut_reads_on_by_another(kit: GrpcKit) -> None:
    """Also when it had nothing to read for many pings."""
    got: list[bytes] = []
    first, second = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        got.append(message.data)
        (first if message.data == b"first" else second).set()

    await publish(kit, b"first")
    with Relay(kit.addresses[1]) as relay:
        options = Options(token=TOKEN, timeout=5)
        subscriber = Subscriber(relay.address, "d", poll_interval=0.05, options=options)
        subscriber.register_handler("orders", handle)
        subscriber.start()
        await until(first)
        await asyncio.sleep(3.5)  # by default gRPC pings twice at most where no data comes
        assert relay.cut() == 1
        await publish(kit, b"second")
        await until(second)
        subscriber.stop()
        await asyncio.to_thread(subscriber.wait)
    assert got == [b"first", b"second"]


async def test_a_client_that_vanished_holds_nothing(kit: GrpcKit) -> None:
    watched = kit.kit.core.watcher._watched
    with Relay(kit.addresses[1]) as relay:
        clients = Clients(kit.addresses[0], relay.address, TOKEN, grpc.aio.insecure_channel)
        stream = clients.egress.Subscribe(egress.SubscribeRequest(subject="orders"))
        await stream.read()
        async with asyncio.timeout(20):
            while not watched:  # noqa: ASYNC110 - what is looked at has no event
                await asyncio.sleep(0.01)
            relay.cut()
            while watched:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for channel in clients.channels:
            await channel.close()
