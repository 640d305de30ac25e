"""One contract for whoever reads large objects: the fake, and MinIO through our S3 adapter."""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.s3.blocks import BLOCK, S3Blocks
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import BlockReader
from tests.servers import MinioServer

BODY = bytes(range(256)) * (BLOCK // 64)
Put = Callable[[bytes], str]


@pytest.fixture(params=["memory", "minio"])
def both(request: pytest.FixtureRequest) -> tuple[BlockReader, Put]:
    """A reader, and a hand that stores an object and tells its name."""
    name = f"m/blocks/{uuid.uuid4().hex}"
    if request.param == "memory":
        fake = MemoryPayloads()

        def keep(body: bytes) -> str:
            fake.client_put(name, body)
            return name

        return fake, keep
    server: MinioServer = request.getfixturevalue("minio_server")
    sigv4 = SigV4(server.endpoint, server.bucket, server.region, server.access_key, server.secret_key)

    async def put(body: bytes) -> None:
        store = S3Payloads(sigv4)
        await store.put_new(name, body, content_type="text/plain")
        await store.close()

    def store(body: bytes) -> str:
        asyncio.run(put(body))
        return name

    return S3Blocks(sigv4), store


@pytest.mark.parametrize(("first", "last"), [(0, len(BODY) - 1), (1, BLOCK), (len(BODY) - 1, len(BODY) - 1)])
def test_a_range_comes_in_pieces(both: tuple[BlockReader, Put], first: int, last: int) -> None:
    reader, put = both
    found = list(reader.blocks(put(BODY), first, last, size=len(BODY)))
    assert b"".join(found) == BODY[first : last + 1]
    assert max(map(len, found)) <= BLOCK


@pytest.mark.parametrize(
    ("last", "size", "code"),
    [(9, 10, "size_mismatch"), (BLOCK, BLOCK + 1, "size_mismatch"), (len(BODY), None, "payload_missing")],
)
def test_an_object_of_another_size_is_told(
    both: tuple[BlockReader, Put], last: int, size: int | None, code: str
) -> None:
    reader, put = both
    with pytest.raises(MtsError) as caught:
        list(reader.blocks(put(BODY), 0, last, size=size))
    assert caught.value.code == code


def test_an_object_that_is_not_there_is_told(both: tuple[BlockReader, Put]) -> None:
    with pytest.raises(MtsError) as caught:
        list(both[0].blocks("m/blocks/nobody-stored-me", 0, 9, size=10))
    assert caught.value.code == "payload_missing"


def test_who_stops_reading_may_read_something_else(both: tuple[BlockReader, Put]) -> None:
    reader, put = both
    name = put(BODY)
    begun = reader.blocks(name, 0, len(BODY) - 1)
    assert next(begun) == BODY[:BLOCK]
    begun.close()
    assert b"".join(reader.blocks(name, 0, 9)) == BODY[:10]


class Tired:
    """A store that breaks off each answer after so many bytes; `bad`: answers that are none before."""

    def __init__(self, after: int, bad: list[bytes]) -> None:
        self.after, self.bad = after, bad
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def reader(self) -> S3Blocks:
        port = self._socket.getsockname()[1]
        return S3Blocks(SigV4(f"http://127.0.0.1:{port}", "bucket", "us-east-1", "AKIDEXAMPLE", "the-secret-key"))

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):  # of a reader that has left
                head = connection.recv(65536).decode()
                asked = next(line for line in head.split("\r\n") if line.lower().startswith("range:"))
                self.asked.append(asked.split("=")[1])
                if self.bad:
                    connection.sendall(self.bad.pop(0))
                    continue
                first, last = map(int, self.asked[-1].split("-"))
                span = f"Content-Range: bytes {first}-{last}/{len(BODY)}\r\nContent-Length: {last - first + 1}"
                connection.sendall(f"HTTP/1.1 206 X\r\n{span}\r\n\r\n".encode())
                connection.sendall(BODY[first : min(last + 1, first + self.after)])

    def close(self) -> None:
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # who waits for a connection would get one more
        self._socket.close()


@pytest.fixture
def tired() -> Iterator[Callable[..., Tired]]:
    made: list[Tired] = []

    def make(after: int, *bad: bytes) -> Tired:
        made.append(Tired(after, list(bad)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_transfer_that_breaks_goes_on_where_it_stood(tired: Callable[..., Tired]) -> None:
    store = tired(300_000)
    assert b"".join(store.reader.blocks("a", 0, len(BODY) - 1)) == BODY
    assert store.asked == [f"{first}-{len(BODY) - 1}" for first in range(0, len(BODY), 300_000)]


@pytest.mark.parametrize("bad", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"])
def test_a_store_that_does_not_answer_is_asked_twice(tired: Callable[..., Tired], bad: bytes) -> None:
    assert b"".join(tired(len(BODY), bad).reader.blocks("a", 0, 9)) == BODY[:10]
    store = tired(len(BODY), bad, bad)
    with pytest.raises(MtsError) as caught:
        list(store.reader.blocks("a", 0, 9))
    assert (caught.value.code, len(store.asked)) == ("unavailable", 2)
    assert "secret" not in str(caught.value)
    assert "X-Amz" not in str(caught.value)


def test_a_store_that_is_away_is_told_by_its_address(tired: Callable[..., Tired]) -> None:
    store = tired(1)
    reader = store.reader
    store.close()
    with pytest.raises(MtsError, match=r"127\.0\.0\.1:\d+: Connection refused") as caught:
        reader.blocks("a", 0, 9)
    assert caught.value.retryable
