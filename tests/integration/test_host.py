"""The host as a process: workers, signals, real sockets. Its routes are fakes; the servers have tests of their own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOKEN = "token-of-the-tests-1"
AUTH = {"authorization": f"Bearer {TOKEN}"}
DEADLINE = 30.0


def eventually(what: Callable[[], Any]) -> Any:
    """What `what` returns as soon as that is true."""
    deadline = time.monotonic() + DEADLINE
    while not (found := what()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return found


class HostProcess:
    def __init__(self, folder: Path, *, start: bool = True, **environ: str) -> None:
        self.log = folder / f"host-{time.monotonic_ns()}.log"
        settings = {
            "MTS_HOME": str(folder / "home"),
            "MTS_TOKEN": TOKEN,
            "MTS_WEBHOOK_TOKEN": "token-of-the-store-1",
            "MTS_SERVER_PORT": "0",
            "MTS_SERVER_INLINE_LIMIT": "1MiB",
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("MTS_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.fake_host"],
                stderr=log,
                env={**inherited, "MTS_SERVER_WORKERS": "2", **settings, **environ},
                cwd=Path(__file__).parents[2],
            )
        self.port = int(eventually(self._listening)) if start else 0
        if start:
            eventually(self.alive)

    def _listening(self) -> str | None:
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"listening on http://127.0.0.1:(\d+)", self.log.read_text())
        return found and found[1]

    def alive(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/healthz")[0] == 200
        return False

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, body, {**AUTH, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    """A host of one's own, to be stopped or killed."""
    with running(tmp_path) as host:
        yield host


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host that tests share and leave alone."""
    with running(tmp_path_factory.mktemp("calm")) as host:
        yield host


@contextlib.contextmanager
def running(folder: Path) -> Iterator[HostProcess]:
    host = HostProcess(folder)
    yield host
    if host.process.poll() is None:
        host.stop()


def refuses(host: HostProcess) -> bool:
    try:
        host.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except FileNotFoundError:
        return True


def test_several_workers_answer_on_one_port(calm: HostProcess) -> None:
    workers = set(calm.workers())
    assert len(workers) == 2
    seen: set[int] = set()

    def all_seen() -> bool:
        seen.add(calm.request("GET", "/v1/pid")[1]["pid"])
        return seen == workers

    eventually(all_seen)


def test_a_killed_worker_is_replaced(host: HostProcess) -> None:
    before = host.workers()
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: before[0] not in host.workers() and len(host.workers()) == 2)
    assert host.request("GET", "/v1/pid")[0] == 200
    assert any("starting it again" in line["message"] for line in host.lines())


async def ask(host: HostProcess, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    assert found
    body = await reader.readexactly(int(found[1]))
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_a_stopping_host_finishes_what_runs_and_ends_long_polls(host: HostProcess) -> None:
    slow = await ask(host, "/v1/slow?seconds=1.5")
    waiting = [await ask(host, "/v1/wait?wait=25") for _ in range(10)]
    idle = await asyncio.open_connection("127.0.0.1", host.port)
    # A request that was answered after the others were sent: they are known to be running.
    await answered(*await ask(host, "/v1/slow?seconds=0.3"))
    began = time.monotonic()
    host.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE):
        for poll in waiting:
            assert await answered(*poll) == (200, {"ended": "by the host"})
        assert (await answered(*slow))[0] == 200
        assert await idle[0].read() == b""
        idle[1].close()
    assert await asyncio.to_thread(host.process.wait, DEADLINE) == 0
    assert time.monotonic() - began < 20
    assert refuses(host)


def test_a_host_that_is_killed_leaves_no_worker_behind(host: HostProcess) -> None:
    workers = host.workers()
    host.process.kill()
    host.process.wait(DEADLINE)
    eventually(lambda: all(is_gone(pid) for pid in workers))
    assert refuses(host)


def test_a_second_signal_ends_the_host_at_once(host: HostProcess) -> None:
    with host.connect() as connection:
        request = f"GET /v1/slow?seconds=20 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(request.encode())
        host.request("GET", "/v1/pid")
        host.process.send_signal(signal.SIGINT)
        eventually(lambda: refuses(host))
        host.process.send_signal(signal.SIGINT)
        assert host.process.wait(10) == 1


def test_a_host_whose_workers_cannot_start_ends_with_an_error(tmp_path: Path) -> None:
    host = HostProcess(tmp_path, start=False, FAKE_HOST="broken")
    assert host.process.wait(DEADLINE) == 1
    assert any("cannot start" in line.get("exception", "") for line in host.lines())


def test_metrics_of_all_workers_are_added_up(host: HostProcess) -> None:
    for _ in range(20):
        host.request("GET", "/v1/pid")

    def counted() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", host.port, timeout=DEADLINE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return 'minitoolstream_ingress_requests_total{status="200"} 20.0' in text

    eventually(counted)


async def test_a_thousand_connections_are_served_side_by_side(host: HostProcess) -> None:
    async with asyncio.timeout(60):
        waiting = [await ask(host, "/v1/wait?wait=25") for _ in range(1000)]
        assert (await answered(*await ask(host, "/v1/pid")))[0] == 200
        host.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*(answered(*poll) for poll in waiting))
    assert answers == [(200, {"ended": "by the host"})] * 1000
    assert await asyncio.to_thread(host.process.wait, DEADLINE) == 0


def test_a_body_over_the_limit_gets_its_answer_while_it_is_being_sent(calm: HostProcess) -> None:
    size = 512 * 1024 * 1024
    head = (
        f"POST /v1/subjects/a/messages HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    with calm.connect() as connection:
        connection.sendall(head.encode() + b"x" * 100_000)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 413
        message = json.loads(answer.read())["error"]["message"]
        assert "POST /v1/subjects/{subject}/uploads" in message
        assert answer.getheader("connection") == "close"


def test_a_client_that_asks_first_does_not_send_a_large_body_at_all(calm: HostProcess) -> None:
    head = (
        f"POST /v1/subjects/a/messages HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Expect: 100-continue\r\nContent-Length: {size}\r\n\r\n"
    )
    with calm.connect() as connection:
        connection.sendall(head.format(size=2 * 1024 * 1024).encode())
        assert connection.recv(12) == b"HTTP/1.1 413"
    with calm.connect() as connection:
        connection.sendall(head.format(size=5).encode())
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert json.loads(answer.read())["body"] == "hello"


def test_a_connection_serves_many_requests_also_after_a_refused_one(calm: HostProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", calm.port, timeout=DEADLINE)
    statuses, sockets = [], set()
    for headers, path in ((AUTH, "/v1/subjects/a/messages"), ({}, "/v1/subjects/a/messages"), (AUTH, "/v1/x")) * 2:
        connection.request("POST", path, b"small", headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        sockets.add(connection.sock)
    connection.close()
    assert statuses == [200, 401, 404] * 2
    assert len(sockets) == 1


def test_what_is_not_http_is_refused_and_does_no_harm(calm: HostProcess) -> None:
    with calm.connect() as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"
    assert calm.request("GET", "/v1/pid")[0] == 200


def test_a_body_that_ends_early_is_dropped(calm: HostProcess) -> None:
    with calm.connect() as connection:
        head = f"POST /v1/subjects/a/messages HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(head.encode() + b"Content-Length: 10\r\n\r\nhello")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert calm.request("GET", "/v1/pid")[0] == 200


def test_a_port_in_use_and_a_missing_token_are_said_clearly(calm: HostProcess, tmp_path: Path) -> None:
    second = HostProcess(tmp_path, start=False, MTS_SERVER_PORT=str(calm.port))
    assert second.process.wait(DEADLINE) != 0
    assert f"cannot listen on 127.0.0.1:{calm.port}" in second.log.read_text()
    third = HostProcess(tmp_path, start=False, MTS_TOKEN="")
    assert third.process.wait(DEADLINE) != 0
    assert "set MTS_TOKEN" in third.log.read_text()


@pytest.mark.parametrize("head", [b"X-Long: " + b"x" * 1_000_000, b"X-Many: x\r\n" * 100_000])
def test_an_endless_head_is_hung_up_on(calm: HostProcess, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", calm.port), 10) as peer:
        peer.settimeout(10)
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head)
            assert peer.recv(1) == b""
    assert calm.request("GET", "/healthz")[0] == 200
