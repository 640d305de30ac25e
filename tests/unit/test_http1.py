"""The HTTP client against a peer that does exactly what each test tells it to, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import uvloop

from minitoolstream.net.http1 import Body, HttpClient, HttpError, HttpTimeout

MIB = 1024 * 1024
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy"')
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


@dataclass
class Peer:
    """A server whose answers are a script; remembers what it was asked."""

    url: str = ""
    connections: int = 0
    heads: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_request(self, reader: asyncio.StreamReader, *, body: bool = True) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        self.asked.set()
        size = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
        return await reader.readexactly(size) if body else b""


@contextlib.asynccontextmanager
async def peer(script: Script, host: str = "127.0.0.1") -> AsyncIterator[Peer]:
    it = Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        it.connections += 1
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await script(it, reader, writer)
        it.gone.set()
        writer.close()

    server = await asyncio.start_server(serve, host, 0)
    port = server.sockets[0].getsockname()[1]
    it.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        yield it
    finally:
        server.close()
        for task in tasks:
            task.cancel()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    it = HttpClient(timeout=10.0)
    yield it
    await it.close()


def always(answer: bytes) -> Script:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await it.read_request(reader)
            writer.write(answer)

    return script


async def echo(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        body = await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def reset(writer: asyncio.StreamWriter) -> None:
    """Close in the rudest way: whatever is under way is answered with RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_a_request_goes_out_as_given_and_the_answer_comes_back(client: HttpClient) -> None:
    async with peer(always(b"HTTP/1.1 201 Created\r\nX-Thing: a\r\nX-THING: b\r\nContent-Length: 2\r\n\r\nok")) as it:
        answer = await client.request("PUT", it.url + "/a%20b?c=d#e", headers={"If-None-Match": "*"}, body=b"hello")
        assert (answer.status, answer.headers["x-thing"], answer.body) == (201, "a, b", b"ok")
        host = it.url.removeprefix("http://")
        assert it.heads == [f"PUT /a%20b?c=d HTTP/1.1\r\nhost: {host}\r\nIf-None-Match: *\r\ncontent-length: 5\r\n\r\n"]


async def test_a_url_without_a_path_asks_for_the_root(client: HttpClient) -> None:
    async with peer(always(OK)) as it:
        await client.request("GET", it.url)
        await client.request("POST", it.url + "?delete")
        assert [head.split("\r\n")[0] for head in it.heads] == ["GET / HTTP/1.1", "POST /?delete HTTP/1.1"]
        assert "content-length" not in it.heads[0]
        assert "content-length: 0" in it.heads[1]


async def test_requests_one_after_the_other_share_a_connection(client: HttpClient) -> None:
    async with peer(always(OK)) as it:
        for _ in range(5):
            assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 1


async def test_no_more_connections_are_made_than_allowed() -> None:
    client = HttpClient(pool_per_host=3)
    async with peer(always(OK)) as it:
        answers = await asyncio.gather(*(client.request("GET", it.url) for _ in range(30)))
        assert [answer.body for answer in answers] == [b"ok"] * 30
        assert it.connections == 3
    await client.close()


async def test_a_caller_that_gives_up_in_the_queue_leaves_the_pool_whole() -> None:
    client = HttpClient(pool_per_host=1)
    go_on = asyncio.Event()

    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await it.read_request(reader)
            await go_on.wait()
            writer.write(OK)

    async with peer(script) as it:
        first = asyncio.create_task(client.request("GET", it.url))
        await it.asked.wait()
        with pytest.raises(HttpTimeout, match="connections stayed busy") as error:
            await client.request("GET", it.url, timeout=0.01)
        assert not error.value.sent
        waiting = asyncio.create_task(client.request("GET", it.url))
        await asyncio.sleep(0)
        waiting.cancel()
        go_on.set()
        assert (await first).body == b"ok"
        assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 1
    await client.close()


async def test_connection_close_is_honoured(client: HttpClient) -> None:
    async with peer(always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")) as it:
        for _ in range(2):
            assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 2


async def test_an_answer_without_a_length_ends_with_the_connection(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of ")
        await writer.drain()
        writer.write(b"this")

    async with peer(script) as it:
        assert (await client.request("GET", it.url)).body == b"all of this"
        async with client.stream("GET", it.url) as answer:
            assert b"".join([chunk async for chunk in answer.chunks()]) == b"all of this"


async def test_a_chunked_answer_with_trailers_is_put_together(client: HttpClient) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    async with peer(always(answer)) as it:
        for _ in range(2):
            got = await client.request("GET", it.url)
            assert got.body == b"abcdefg"
            assert "x-trailer" not in got.headers
        assert it.connections == 1


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 404 Not Found\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
        ("PUT", b"HTTP/1.1 100 Continue\r\nX-No: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_answers_without_a_body_leave_the_connection_usable(
    client: HttpClient, method: str, answer: bytes
) -> None:
    async with peer(always(answer)) as it:
        for _ in range(3):
            got = await client.request(method, it.url)
            assert got.body == b""
            assert "x-no" not in got.headers
            assert got.status != 100
        assert it.connections == 1


async def once_a_connection(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request a connection, then closes when the next one comes: a stale connection."""
    await it.read_request(reader)
    writer.write(OK)
    await it.read_request(reader)


@pytest.mark.parametrize(("method", "options"), [("GET", {}), ("PUT", {"body": b"x"}), ("POST", {"retry_stale": True})])
async def test_a_stale_connection_is_replaced_and_the_answer_says_so(
    client: HttpClient, method: str, options: dict[str, object]
) -> None:
    async with peer(once_a_connection) as it:
        for resent in (False, True, True):
            answer = await client.request(method, it.url, **options)  # type: ignore[arg-type]
            assert (answer.body, answer.resent) == (b"ok", resent)
        assert it.connections == 3


@pytest.mark.parametrize(("method", "options"), [("POST", {}), ("PUT", {"body": b"x", "retry_stale": False})])
async def test_nothing_is_sent_twice_that_is_not_idempotent(
    client: HttpClient, method: str, options: dict[str, object]
) -> None:
    async with peer(once_a_connection) as it:
        await client.request(method, it.url, **options)  # type: ignore[arg-type]
        with pytest.raises(HttpError, match="before it answered") as error:
            await client.request(method, it.url, **options)  # type: ignore[arg-type]
        assert error.value.sent
        assert len(it.heads) == 2


async def test_a_connection_closed_while_idle_is_not_used(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        writer.write(OK)

    async with peer(script) as it:
        await client.request("POST", it.url)
        await it.gone.wait()
        for _ in range(1000):
            if not client._pools[it.url]._idle:
                break
            await asyncio.sleep(0.005)
        assert (await client.request("POST", it.url)).body == b"ok"


async def test_a_fresh_connection_that_breaks_is_not_tried_again(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)

    async with peer(script) as it:
        with pytest.raises(HttpError, match="before it answered") as error:
            await client.request("GET", it.url)
        assert error.value.sent
        assert it.connections == 1


async def test_an_answer_that_breaks_off_is_an_error(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with peer(script) as it:
        with pytest.raises(HttpError, match="in the middle"):
            await client.request("GET", it.url)
        async with client.stream("GET", it.url) as answer:
            chunks = answer.chunks()
            with pytest.raises(HttpError, match="in the middle"):
                assert [chunk async for chunk in chunks] == []


async def test_what_follows_an_answer_is_never_taken_for_the_next_one(client: HttpClient) -> None:
    async with peer(always(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")) as it:
        for _ in range(3):
            assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 3


@pytest.mark.parametrize("answer", [b"SSH-2.0-nope\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"])
async def test_something_that_is_not_http_is_an_error(client: HttpClient, answer: bytes) -> None:
    async with peer(always(answer)) as it:
        with pytest.raises(HttpError, match="not HTTP"):
            await client.request("GET", it.url)


async def test_an_endless_head_is_an_error(client: HttpClient) -> None:
    async with peer(always(b"HTTP/1.1 200 OK\r\n" + b"X-A: %s\r\n" % (b"a" * 1000) * 400)) as it:
        with pytest.raises(HttpError, match="too long"):
            await client.request("GET", it.url)


@pytest.mark.parametrize("rude", [False, True], ids=["closing", "resetting"])
@pytest.mark.parametrize("kind", ["bytes", "parts", "stream"])
async def test_a_refusal_during_the_upload_is_returned(client: HttpClient, kind: str, rude: bool) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader, body=False)
        writer.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 7\r\n\r\ntoo big")
        await writer.drain()
        if rude:
            reset(writer)

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield bytes(MIB)

    bodies: dict[str, Body] = {"bytes": bytes(64 * MIB), "parts": [bytes(MIB)] * 64, "stream": stream()}
    async with peer(script) as it:
        try:
            answer = await client.request("PUT", it.url, body=bodies[kind], content_length=64 * MIB)
        except HttpError:
            # RST may overtake the answer; then the kernel has nothing left to read.
            assert rude
        else:
            assert (answer.status, answer.body) == (413, b"too big")


async def test_a_refusal_is_read_even_when_the_next_write_finds_the_connection_gone(
    client: HttpClient,
) -> None:
    """The answer waits in the socket, unread, when the write fails: the transport alone would lose it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def stream() -> AsyncIterator[bytes]:
            yield b"x" * MIB
            # No await from here on: the event loop has no chance to see the answer before the write.
            conn, _ = server.accept()
            conn.recv(10)
            conn.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nno way")
            conn.close()  # with unread data: a reset follows the answer
            for _ in range(8):
                yield b"x" * MIB

        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        answer = await client.request("PUT", url, body=stream(), content_length=9 * MIB)
        assert (answer.status, answer.body) == (403, b"no way")


async def test_a_large_upload_arrives_whole_whatever_its_form(client: HttpClient) -> None:
    payload = bytes(range(256)) * 4 * 3000 + b"end"

    async def stream() -> AsyncIterator[bytes]:
        for start in range(0, len(payload), 70_001):
            yield payload[start : start + 70_001]

    parts = [payload[:5], payload[5:6], b"", payload[6:900_000], *[payload[900_000:]]]
    async with peer(echo) as it:
        for body in (payload, parts, stream()):
            answer = await client.request("PUT", it.url, body=body, content_length=len(payload))
            assert answer.body == payload
        assert it.connections == 1


@pytest.mark.parametrize(("announced", "message"), [(99, "short of"), (5, "longer than")])
async def test_a_body_of_another_length_than_announced_is_refused(
    client: HttpClient, announced: int, message: str
) -> None:
    closed: list[bool] = []

    async def stream() -> AsyncIterator[bytes]:
        try:
            yield b"123"
            yield b"456"
        finally:
            closed.append(True)

    async with peer(always(OK)) as it:
        with pytest.raises(ValueError, match=message):
            await client.request("PUT", it.url, body=stream(), content_length=announced)
        assert closed == [True]
        assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 2
        with pytest.raises(ValueError, match="content_length"):
            await client.request("PUT", it.url, body=b"1", content_length=2)
        with pytest.raises(ValueError, match="needs content_length"):
            await client.request("PUT", it.url, body=stream())


async def test_a_peer_that_reads_slowly_slows_the_upload_down(client: HttpClient) -> None:
    sent = 0
    read_on = asyncio.Event()

    async def stream() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(256):
            sent += 1
            yield bytes(MIB)

    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader, body=False)
        await read_on.wait()
        left = 256 * MIB
        while left:
            left -= len(await reader.read(MIB))
        writer.write(OK)

    async with peer(script) as it:
        upload = asyncio.create_task(client.request("PUT", it.url, body=stream(), content_length=256 * MIB))
        before = -1
        while sent != before:  # until the buffers of both sides are full
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 64
        read_on.set()
        assert (await upload).body == b"ok"


async def test_a_caller_that_reads_slowly_slows_the_peer_down(client: HttpClient) -> None:
    written = 0

    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (128 * MIB))
        for _ in range(128):
            writer.write(bytes(MIB))
            await writer.drain()
            written += 1
        await it.read_request(reader)
        writer.write(OK)

    async with peer(script) as it:
        async with client.stream("GET", it.url) as answer:
            before = -1
            while written != before:
                before = written
                await asyncio.sleep(0.05)
            assert written < 64
            assert sum([len(chunk) async for chunk in answer.chunks()]) == 128 * MIB
        assert (await client.request("GET", it.url)).body == b"ok"
        assert it.connections == 1


async def test_a_stream_left_early_closes_its_connection(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIB + bytes(1000))
        await reader.read()

    async with peer(script) as it:
        async with client.stream("GET", it.url) as answer:
            async for chunk in answer.chunks():
                assert chunk
                break
        async with asyncio.timeout(5):
            await it.gone.wait()
        async with client.stream("GET", it.url) as answer:
            assert answer.status == 200
        assert it.connections == 2


async def test_a_silent_peer_is_a_timeout(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader, body=False)
        await reader.read()

    async with peer(script) as it:
        for body in (b"", bytes(64 * MIB)):
            it.gone.clear()
            with pytest.raises(HttpTimeout) as error:
                await client.request("PUT", it.url, body=body, timeout=0.05)
            assert error.value.sent


async def test_only_silence_is_a_timeout_not_a_long_transfer(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.05)
            writer.write(b"x")

    async with peer(script) as it:
        assert (await client.request("GET", it.url, timeout=0.4)).body == b"x" * 10
        async with client.stream("GET", it.url, timeout=0.4) as answer:
            async for _ in answer.chunks():
                await asyncio.sleep(0.06)


async def test_a_cancelled_request_takes_its_connection_with_it(client: HttpClient) -> None:
    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        await reader.read()

    async with peer(script) as it:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.request("GET", it.url)
        async with asyncio.timeout(5):
            await it.gone.wait()


async def test_a_refused_connection_was_surely_not_sent(client: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HttpError, match="cannot connect") as error:
        await client.request("POST", f"http://127.0.0.1:{port}/?secret=1")
    assert not error.value.sent
    assert "secret" not in str(error.value)


async def test_ipv6_addresses_work(client: HttpClient) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    async with peer(always(OK), "::1") as it:
        assert (await client.request("GET", it.url)).body == b"ok"


async def test_a_closed_client_refuses_and_ends_what_runs() -> None:
    client = HttpClient()

    async def script(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read_request(reader)
        await reader.read()

    async with peer(script) as it:
        running = asyncio.create_task(client.request("GET", it.url))
        await it.asked.wait()
        await client.close()
        with pytest.raises(HttpError):
            await running
        with pytest.raises(HttpError, match="client is closed") as error:
            await client.request("GET", it.url)
        assert not error.value.sent


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://h/\r\nX: y", {}),
        ("http://h/a b", {}),
        ("http://h/\u00e4", {}),
        ("ftp://h/", {}),
        ("http://user@h/", {}),
        ("http://h\r\n/", {}),
        ("http://h/", {"X-A": "1\r\nX-B: 2"}),
        ("http://h/", {"X-A": "1\nX-B: 2"}),
        ("http://h/", {"X-A": "1\rX-B: 2"}),
        ("http://h/", {"X-A": "\0"}),
        ("http://h/", {"X-A: 1\r\nX-B": "2"}),
        ("http://h/", {"": "2"}),
        ("http://h/", {"Content-Length": "5"}),
        ("http://h/", {"transfer-encoding": "chunked"}),
    ],
)
async def test_nothing_can_be_smuggled_into_a_request(client: HttpClient, url: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"URL|header"):
        await client.request("GET", url, headers=headers)
    with pytest.raises(ValueError, match="method"):
        await client.request("GET / HTTP/1.1\r\nX: y\r\n", "http://h/")
