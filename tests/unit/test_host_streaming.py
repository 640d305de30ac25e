"""Answers that take their time, as the host sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from minitoolstream.api.app import Request, Response, Route, answer
from minitoolstream.host.app import Host
from minitoolstream.host.streaming import DisconnectedError, send_stream, until_left
from tests.unit import host_client
from tests.unit.host_client import call, open_host


class Client:
    """Takes pieces when it is told to, and leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves: Callable[[], None] | None = None
        self.takes = asyncio.Semaphore(0)
        self.got: list[bytes] = []

    def when_left(self, leave: Callable[[], None] | None) -> None:
        self.leaves = leave

    async def write(self, piece: bytes) -> None:
        await self.takes.acquire()
        self.got.append(piece)


class Pieces:
    def __init__(self, count: int) -> None:
        self.count, self.made, self.closed = count, 0, False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(self.count):
                self.made += 1
                yield b"%d" % number
        finally:
            self.closed = True


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_slow_client_is_waited_for() -> None:
    client, pieces = Client(), Pieces(1000)
    sending = asyncio.create_task(send_stream(pieces.stream(), client))
    await settle()
    assert pieces.made == 1
    client.takes.release()
    client.takes.release()
    await settle()
    assert (client.got, pieces.made) == ([b"0", b"1"], 3)
    sending.cancel()
    await asyncio.wait([sending])
    assert pieces.closed


async def test_a_stream_ends_with_its_last_piece() -> None:
    client, pieces = Client(), Pieces(2)
    for _ in range(3):
        client.takes.release()
    await send_stream(pieces.stream(), client)
    assert client.got == [b"0", b"1"]
    assert pieces.closed


async def test_a_client_that_leaves_ends_its_stream() -> None:
    client, pieces = Client(), Pieces(1000)
    sending = asyncio.create_task(send_stream(pieces.stream(), client))
    await settle()
    assert client.leaves
    client.leaves()
    with pytest.raises(DisconnectedError):
        await asyncio.wait_for(sending, 5)
    assert pieces.closed
    assert pieces.made == 1


async def test_work_for_a_client_that_left_is_given_up() -> None:
    client, ended = Client(), asyncio.Event()

    async def work() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 1

    running = asyncio.create_task(until_left(work(), client))
    await settle()
    assert client.leaves
    client.leaves()
    with pytest.raises(DisconnectedError):
        await asyncio.wait_for(running, 5)
    assert ended.is_set()


async def test_who_stops_the_host_is_not_taken_for_a_client_that_left() -> None:
    client = Client()
    running = asyncio.create_task(until_left(asyncio.Event().wait(), client))
    await settle()
    assert client.leaves
    client.leaves()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)
    assert client.leaves is None


async def test_what_work_raises_is_raised() -> None:
    async def work() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await until_left(work(), Client())


async def host_with(handler: Any) -> Host:
    return await open_host(("fetch", Route("GET", "/v1/long", handler, "takes long", waits=True)))


async def test_the_host_sends_a_stream_without_a_length() -> None:
    async def handler(request: Request) -> Response:
        assert request.may_stream
        return Response(b"", 200, {"content-type": "text/event-stream"}, Pieces(3).stream())

    host = await host_with(handler)
    got = await call(host, "GET", "/v1/long")
    assert (got.status, got.body) == (200, b"012")
    assert "content-length" not in got.headers
    assert got.headers["cache-control"] == "no-store"
    assert b"minitoolstream_egress_open_streams 0.0" in (await call(host, "GET", "/metrics")).body
    await host.stop()


async def test_the_host_gives_up_a_wait_whose_client_left() -> None:
    ended = asyncio.Event()

    async def handler(_request: Request) -> Response:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return answer({})

    host = await host_with(handler)
    assert (await call(host, "GET", "/v1/long", [host_client.Client.LEAVES])).status == 0
    assert ended.is_set()
    await host.stop()


async def test_a_head_request_does_not_open_a_stream() -> None:
    async def handler(_request: Request) -> Response:
        raise AssertionError

    host = await host_with(handler)
    refused = await call(host, "HEAD", "/v1/long")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")
    await host.stop()
