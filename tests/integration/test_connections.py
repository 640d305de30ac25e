"""A thousand clients at once, each with a connection that stays open."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.live import Live

CLIENTS = 1000
OPENED_AT_ONCE = 100
WITHIN = 60.0


@pytest.fixture
def open_files() -> Iterator[None]:
    """Enough of them in this process, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * CLIENTS), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Client:
    """One keep-alive connection."""

    def __init__(self, live: Live) -> None:
        address = urlsplit(live.url)
        self._address = (address.hostname, address.port)
        self._head = f"Host: localhost\r\nAuthorization: Bearer {live.token}\r\n"

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return status, await self._reader.readexactly(int(fields[b"content-length"]))

    def close(self) -> None:
        self._writer.close()


async def test_a_thousand_open_connections_are_all_answered(live: Live, subject: str, open_files: None) -> None:
    clients = [Client(live) for _ in range(CLIENTS)]
    opening = asyncio.Semaphore(OPENED_AT_ONCE)

    async def connect(client: Client) -> None:
        async with opening:
            await client.connect()

    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*(connect(client) for client in clients))
        latest = await asyncio.gather(*(client.request("GET", f"/v1/subjects/{subject}/latest") for client in clients))
        assert {status for status, _ in latest} == {200}

        # All are still open: a publish works among them, and each can be used again.
        status, receipt = await clients[0].request("POST", f"/v1/subjects/{subject}/messages", b"hello")
        assert status == 201
        sequence = json.loads(receipt)["sequence"]
        again = await asyncio.gather(*(client.request("GET", f"/v1/messages/{sequence}") for client in clients))
    assert {status for status, _ in again} == {200}
    for client in clients:
        client.close()


async def test_a_thousand_receipts_wait_for_one_commit(live: Live, subject: str, open_files: None) -> None:
    ticket = live.ticket(subject, 5)
    clients = [Client(live) for _ in range(CLIENTS)]
    publisher = Client(live)
    opening = asyncio.Semaphore(OPENED_AT_ONCE)

    async def wait(client: Client) -> tuple[int, bytes]:
        async with opening:
            await client.connect()
        return await client.request("GET", f"/v1/uploads/{ticket['upload_id']}?wait=25")

    async with asyncio.timeout(WITHIN):
        receipts = asyncio.gather(*(wait(client) for client in clients))
        await publisher.connect()
        status, _ = await publisher.request("POST", f"/v1/subjects/{subject}/messages", b"meanwhile")
        assert status == 201
        assert (await asyncio.to_thread(live.put, ticket, b"hello")).status == 200
        answers = [(status, json.loads(body)["state"]) for status, body in await receipts]
    assert set(answers) == {(200, "committed")}
    for client in [*clients, publisher]:
        client.close()
