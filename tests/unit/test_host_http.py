"""The host's HTTP over a real socket: what it understands, when it writes, when it hangs up."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from minitoolstream.host import http
from minitoolstream.host.http import HttpConnection
from minitoolstream.host.incoming import Incoming
from minitoolstream.host.streaming import DisconnectedError, until_left
from minitoolstream.host.turns import Turns

Serve = Callable[[Incoming], Coroutine[Any, Any, None]]
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
WITHIN = 10.0


class Recorded(HttpConnection):
    """Remembers what was handed to the socket at once, and tells when the client does not take it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.writes: list[bytes] = []
        self.full, self.lost = asyncio.Event(), asyncio.Event()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.full.set()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.lost.set()

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)


@asynccontextmanager
async def serving(serve: Serve, keep_alive: float = 75) -> AsyncIterator[tuple[list[Recorded], Client]]:
    made: list[Recorded] = []
    begun = asyncio.Event()

    def make() -> Recorded:
        made.append(Recorded(serve, set(), Turns(), keep_alive))
        asyncio.get_running_loop().call_soon(begun.set)
        return made[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    client = await asyncio.open_connection(*server.sockets[0].getsockname())
    await asyncio.wait_for(begun.wait(), WITHIN)
    try:
        async with asyncio.timeout(WITHIN):
            yield made, client
    finally:
        client[1].close()
        server.close()


async def hello(incoming: Incoming) -> None:
    incoming.answer(200, [], b"hello")


async def echo(incoming: Incoming) -> None:
    """Method, path, query and body, and in how many pieces the body came."""
    whole = incoming.whole_body()
    pieces, more = [], whole is None
    while more:
        piece, more = await incoming.receive()
        pieces.append(piece)
    body = b"".join(pieces) if whole is None else whole
    told = f"{incoming.method} {incoming.path} {incoming.query.decode()} {'whole' if whole is not None else 'pieces'} "
    incoming.answer(200, [("x-length", str(len(body)))], told.encode() + body[:10])


async def answer_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    return head, await reader.readexactly(int(length.split()[1]))


async def test_an_answer_is_one_write() -> None:
    async with serving(hello) as (made, (reader, writer)):
        writer.write(GET)
        assert (await answer_of(reader))[1] == b"hello"
        assert made[0].writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_part() -> None:
    go_on = asyncio.Event()

    async def stream(incoming: Incoming) -> None:
        incoming.begin(200, [("x-a", "b")])
        await go_on.wait()
        await incoming.write(b"hello")
        incoming.end()

    async with serving(stream) as (_, (reader, writer)):
        writer.write(GET)
        assert b"x-a: b" in await reader.readuntil(b"\r\n\r\n")
        go_on.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
        writer.write(GET)
        assert b"x-a: b" in await reader.readuntil(b"\r\n\r\n")


async def test_to_a_client_of_http_1_0_a_stream_ends_with_the_connection() -> None:
    async def stream(incoming: Incoming) -> None:
        incoming.begin(200, [])
        await incoming.write(b"hello")
        incoming.end()

    async with serving(stream) as (_, (reader, writer)):
        writer.write(b"GET /x HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert (b"chunked" in head, body) == (False, b"hello")


async def test_a_slow_reader_of_a_stream_is_waited_for() -> None:
    written = 0

    async def stream(incoming: Incoming) -> None:
        nonlocal written
        incoming.begin(200, [])
        for _ in range(1000):
            await incoming.write(bytes(65536))
            written += 1
        incoming.end()

    async with serving(stream) as (_, (reader, writer)):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != written:
            before = written
            for _ in range(100):
                await asyncio.sleep(0)
        assert written < 1000
        await _read_until(reader, b"\r\n0\r\n\r\n")
        assert written == 1000


async def _read_until(reader: asyncio.StreamReader, end: bytes) -> None:
    tail = b""
    while not tail.endswith(end):
        tail = (tail + await reader.read(1 << 20))[-len(end) :]


async def test_who_streams_hears_that_the_client_is_gone() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def stream(incoming: Incoming) -> None:
        incoming.begin(200, [])
        with suppress(DisconnectedError):
            await until_left(asyncio.Event().wait(), incoming)
        heard.put_nowait("left")
        try:
            await incoming.write(b"x")
        except DisconnectedError:
            heard.put_nowait("refused")

    async with serving(stream) as (_, (reader, writer)):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert [await heard.get(), await heard.get()] == ["left", "refused"]


async def test_the_answer_to_a_head_request_has_no_body() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(GET.replace(b"GET", b"HEAD") + GET)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
        assert (await answer_of(reader))[1] == b"hello"


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAQ\r\n"


async def test_a_client_that_wants_to_close_is_answered_and_closed() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(GET.replace(b"Host: h", b"Connection: close"))
        head, body = await answer_of(reader)
        assert (b"connection: close" in head, body) == (True, b"hello")
        assert await reader.read() == b""


async def test_a_header_cannot_smuggle_another_one_in() -> None:
    async def smuggle(incoming: Incoming) -> None:
        incoming.answer(200, [("x-name", "a\r\nset-cookie: b")], b"")

    async with serving(smuggle) as (_, (reader, writer)):
        writer.write(GET)
        assert await reader.read() == b""


@pytest.mark.parametrize("upgrade", [b"", UPGRADE])
@pytest.mark.parametrize("size", [0, 5, 1_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_of_any_length_arrive(size: int, chunked: bool, upgrade: bytes) -> None:
    """Also behind the wish for another protocol, which Java's client sends with each POST."""
    async with serving(echo) as (_, (reader, writer)):
        body = bytes(size)
        if chunked:
            chunks = b"%x\r\n%b\r\n" % (size, body) if size else b""
            kind, framed = b"Transfer-Encoding: chunked", chunks + b"0\r\n\r\n"
        else:
            kind, framed = b"Content-Length: %d" % size, body
        for _ in range(2):
            writer.write(b"POST /a%2Fb?q=1 HTTP/1.1\r\nHost: h\r\n" + upgrade + kind + b"\r\n\r\n" + framed)
            head, told = await answer_of(reader)
            assert b"x-length: %d\r\n" % size in head
            assert told.startswith(b"POST /a%2Fb q=1 " + (b"whole" if size < 1000 else b"pieces"))


async def test_who_asks_for_another_protocol_and_sends_in_pieces_and_ahead_is_read_as_all_others() -> None:
    post = b"POST /x HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 5\r\n\r\nhello"
    get = GET.replace(b"Host: h\r\n", UPGRADE)
    async with serving(echo) as (_, (reader, writer)):
        sent = (post + get) * 3 + post
        for at in range(len(sent)):
            writer.write(sent[at : at + 1])
            await asyncio.sleep(0)
        bodies = [(await answer_of(reader))[1] for _ in range(7)]
        assert [body.split()[-1] for body in bodies] == [b"hello", *[bodies[1].split()[-1], b"hello"] * 3]
        writer.write(sent)
        assert [(await answer_of(reader))[1].split()[-1] for _ in range(7)][::2] == [b"hello"] * 4


async def test_a_wish_for_a_tunnel_is_refused_and_what_follows_is_not_read() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 400 ")
        assert await reader.read() == b""


async def test_a_client_that_asks_first_is_told_to_go_on_when_its_body_is_wanted() -> None:
    async with serving(echo) as (_, (reader, writer)):
        writer.write(b"POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await answer_of(reader))[1] == b"POST /x  pieces hello"


async def test_a_body_that_nobody_reads_does_not_spoil_the_next_request() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nGET /")
        assert (await answer_of(reader))[1] == b"hello"
        writer.write(b"y HT" + GET)
        assert (await answer_of(reader))[1] == b"hello"


async def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    keep_alive = 0.2

    async def slow(incoming: Incoming) -> None:
        await asyncio.sleep(keep_alive * 2 if incoming.path == "/slow" else 0)
        incoming.answer(200, [], b"done")

    async with serving(slow, keep_alive) as (_, (reader, writer)):
        for path in (b"/x", b"/slow", b"/x"):
            writer.write(GET.replace(b"/x", path))
            assert (await answer_of(reader))[1] == b"done"
        began = asyncio.get_running_loop().time()
        assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - began > keep_alive / 2


@pytest.mark.parametrize("before", [b"", GET])
async def test_a_head_that_does_not_end_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.1)
    async with serving(hello) as (_, (reader, writer)):
        writer.write(before + b"GET /x HTTP/1.1\r\nHost:")
        if before:
            assert (await answer_of(reader))[1] == b"hello"
        assert await reader.read() == b""


async def test_a_head_without_end_is_hung_up_on() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(b"GET /x HTTP/1.1\r\n" + b"X-A: b\r\n" * 20_000)
        with suppress(ConnectionResetError):  # what it had not read yet is thrown away
            assert await reader.read() == b""


@pytest.mark.parametrize("nonsense", [b"\x16\x03\x01 hello", b"GET /x HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
async def test_what_is_no_http_is_told_so(nonsense: bytes) -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(nonsense)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"bad_request" in answer


async def test_a_damaged_body_is_the_end_of_its_request() -> None:
    heard = asyncio.Event()

    async def read(incoming: Incoming) -> None:
        try:
            while (await incoming.receive())[1]:
                pass
        except DisconnectedError:
            heard.set()
            raise

    async with serving(read) as (_, (reader, writer)):
        writer.write(b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        await heard.wait()


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def slowly(incoming: Incoming) -> None:
        await asyncio.sleep(0)
        await echo(incoming)

    async with serving(slowly) as (_, (reader, writer)):
        paths = [b"/%d" % number for number in range(20)]
        writer.write(b"".join(GET.replace(b"/x", path + b"?q") for path in paths))
        assert [(await answer_of(reader))[1].split()[1] for _ in paths] == paths


async def test_of_thousands_of_requests_sent_at_once_few_are_read_ahead() -> None:
    """What the loop reads at once may hold that many, and each takes many times its size in memory."""
    go_on = asyncio.Event()

    async def wait(incoming: Incoming) -> None:
        await go_on.wait()
        incoming.answer(200, [], incoming.path.encode())

    async with serving(wait) as (made, (reader, writer)):
        made[0].data_received(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(10_000)))
        assert len(made[0]._ahead) < http.READ_AT_ONCE / 16
        go_on.set()
        assert [(await answer_of(reader))[1] for _ in range(10_000)] == [b"/%d" % number for number in range(10_000)]
        writer.write(GET)
        assert (await answer_of(reader))[1] == b"/x"


async def test_a_connection_does_not_keep_what_it_has_read() -> None:
    """It may be idle for a minute."""
    parsed = b"POST /x HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000)
    waiting = b"GET /x HTTP/1.1\r\n\r\n" * 10_000

    async with serving(echo) as (made, (reader, writer)):
        made[0].data_received(parsed)
        await answer_of(reader)
        assert sys.getrefcount(parsed) == 2, "the variable here, and the argument"
        made[0].data_received(waiting)
        assert sys.getrefcount(waiting) > 2
        writer.transport.abort()
        await made[0].lost.wait()
        assert sys.getrefcount(waiting) == 2


async def test_a_connection_that_was_lost_is_forgotten_without_the_collector() -> None:
    gc.disable()
    try:
        async with serving(echo) as (made, (reader, writer)):
            writer.write(GET)
            await answer_of(reader)
            lost, connection = made[0].lost, weakref.ref(made[0])
            writer.close()
            await lost.wait()
            made.clear()
            await asyncio.sleep(0)  # the loop lets go of its last call
            assert connection() is None
    finally:
        gc.enable()


async def test_requests_with_bodies_sent_ahead_are_answered_in_order() -> None:
    async with serving(echo) as (_, (reader, writer)):
        size = 400_000
        one = b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
        writer.write(one * 4)
        for _ in range(4):
            assert b"x-length: 400000\r\n" in (await answer_of(reader))[0]


async def test_a_server_that_stops_answers_what_it_has_begun() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(incoming: Incoming) -> None:
        begun.set()
        await go_on.wait()
        incoming.answer(200, [], b"done")

    async with serving(wait) as (made, (reader, writer)):
        writer.write(GET)
        await begun.wait()
        made[0].finish()
        go_on.set()
        assert (await answer_of(reader))[1] == b"done"
        assert await reader.read() == b""


async def test_a_server_that_stops_closes_what_is_idle() -> None:
    async with serving(hello) as (made, (reader, writer)):
        writer.write(GET)
        await answer_of(reader)
        made[0].finish()
        assert await reader.read() == b""


TRAILED = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"


async def test_what_stands_behind_a_body_is_no_header() -> None:
    async def names(incoming: Incoming) -> None:
        incoming.answer(200, [], " ".join(incoming.headers).encode())

    async with serving(names) as (_, (reader, writer)):
        writer.write(TRAILED + b"Authorization: Bearer x\r\n\r\n")
        assert (await answer_of(reader))[1] == b"transfer-encoding"


async def test_a_trailer_without_end_is_hung_up_on() -> None:
    async def wait(incoming: Incoming) -> None:
        await until_left(asyncio.Event().wait(), incoming)

    async with serving(wait) as (_, (reader, writer)):
        writer.write(TRAILED)
        with suppress(ConnectionError):
            for number in range(20_000):
                writer.write(b"x%d: %b\r\n" % (number, bytes(1000).replace(b"\0", b"y")))
                await writer.drain()
        with suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.parametrize("after", [b"nonsense\r\n\r\n", b"POST /x HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
@pytest.mark.parametrize("count", [1, 3])
async def test_what_came_before_nonsense_is_answered_for_itself(after: bytes, count: int) -> None:
    async def slowly(incoming: Incoming) -> None:
        await asyncio.sleep(0.01)
        incoming.answer(201, [], b"stored")

    async with serving(slowly) as (_, (reader, writer)):
        writer.write(GET * count + after)
        for _ in range(count):
            head, body = await answer_of(reader)
            assert (head[:12], body) == (b"HTTP/1.1 201", b"stored")
        assert await reader.read() == b""


async def test_what_follows_a_last_request_is_not_read() -> None:
    async with serving(hello) as (_, (reader, writer)):
        writer.write(GET.replace(b"Host: h", b"Connection: close") + GET)
        assert (await answer_of(reader))[1] == b"hello"
        assert await reader.read() == b""


async def test_who_has_asked_and_closes_its_side_gets_its_answer() -> None:
    async def slowly(incoming: Incoming) -> None:
        await asyncio.sleep(0.05)
        incoming.answer(201, [], b"stored")

    async with serving(slowly) as (_, (reader, writer)):
        writer.write(GET)
        writer.write_eof()
        assert (await answer_of(reader))[1] == b"stored"
        assert await reader.read() == b""


async def test_who_closes_its_side_and_waits_for_long_has_left() -> None:
    async def wait(incoming: Incoming) -> None:
        await until_left(asyncio.Event().wait(), incoming)

    async with serving(wait) as (_, (reader, writer)):
        writer.write(GET)
        writer.write_eof()
        assert await reader.read() == b""


@pytest.mark.parametrize("ahead", [0, 1])
async def test_who_waits_for_long_and_leaves_is_heard_to_leave(ahead: int) -> None:
    heard = asyncio.Event()

    async def wait(incoming: Incoming) -> None:
        with suppress(DisconnectedError):
            await until_left(asyncio.Event().wait(), incoming)
        heard.set()

    async with serving(wait) as (_, (_reader, writer)):
        writer.write(GET * (1 + ahead))
        await writer.drain()
        await asyncio.sleep(0)
        writer.close()
        await heard.wait()


async def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.1)

    async def much(incoming: Incoming) -> None:
        incoming.answer(200, [], bytes(20_000_000))

    async with serving(much) as (made, (_reader, writer)):
        writer.write(GET * 3)
        await made[0].lost.wait()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_server_that_stops_does_not_wait_for_who_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(http, "LAST_WRITE_SECONDS", 0.1)

    async def much(incoming: Incoming) -> None:
        if not streamed:
            incoming.answer(200, [], bytes(20_000_000))
            return
        incoming.begin(200, [])
        while True:
            await incoming.write(bytes(1_000_000))

    async with serving(much) as (made, (_reader, writer)):
        writer.write(GET)
        await made[0].full.wait()
        made[0].finish()
        await made[0].lost.wait()
