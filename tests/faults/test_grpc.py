"""gRPC while parts die: scenario 6 of the specification, health, and streams that are cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from minitoolstream.domain.limits import MIB
from minitoolstream.pb import egress_v1_pb2 as egress
from minitoolstream.pb import ingress_v1_pb2 as ingress
from minitoolstream.pb import legacy_pb2 as legacy
from tests.grpc_kit import Clients, GrpcProcess, start_grpc
from tests.live import Live, eventually, start_live

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("grpc-faults"))
    yield live
    live.stop()


@pytest.fixture
def server(stack: Live) -> Iterator[GrpcProcess]:
    process = start_grpc(stack)
    yield process
    process.stop()


def publish(clients: Clients, subject: str, data: bytes) -> Any:
    return clients.ingress.Publish(ingress.PublishRequest(subject=subject, data=data), timeout=20)


def is_serving(clients: Clients) -> bool:
    return bool(clients.health.Check(health_pb2.HealthCheckRequest()).status == SERVING)


@pytest.mark.parametrize("part", ["tarantool", "minio"])
def test_a_part_that_is_away_is_said_and_comes_back(stack: Live, server: GrpcProcess, part: str, subject: str) -> None:
    clients = server.clients()
    assert publish(clients, subject, b"before").status_code == 0
    down = getattr(stack, part)
    down.kill()
    with pytest.raises(grpc.RpcError) as raised:
        publish(clients, subject, b"lost?")
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    eventually(lambda: not is_serving(clients))
    down.start()
    eventually(lambda: is_serving(clients))
    assert publish(clients, subject, b"after").status_code == 0
    messages = clients.egress.Fetch(egress.FetchRequest(subject=subject, limit=10)).messages
    assert [message.data for message in messages if message.data != b"lost?"] == [b"before", b"after"]


def test_a_subscription_outlives_a_restart_of_tarantool(stack: Live, server: GrpcProcess, subject: str) -> None:
    clients = server.clients()
    publish(clients, subject, b"before")
    stream = clients.egress.Subscribe(egress.SubscribeRequest(subject=subject), timeout=60)
    older = clients.old_egress.Subscribe(legacy.SubscribeRequest(subject=subject, durable_name="d"), timeout=60)
    next(stream)
    next(older)
    stack.tarantool.kill()
    stack.tarantool.start()
    sequence = eventually(lambda: _published(clients, subject))
    assert any(told.notification.latest_sequence >= sequence for told in stream)
    assert any(told.sequence >= sequence for told in older)
    stream.cancel()
    older.cancel()


def _published(clients: Clients, subject: str) -> int:
    try:
        return int(publish(clients, subject, b"x").sequence)
    except grpc.RpcError:
        return 0


def kill_workers(process: GrpcProcess) -> None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8").split()
    assert children
    for child in children:
        os.kill(int(child), signal.SIGKILL)


def test_a_worker_that_dies_in_a_stream_leaves_no_message(stack: Live, server: GrpcProcess, subject: str) -> None:
    """Nothing is published of it, what came so far goes with its ticket; and another worker takes its place."""
    clients = server.clients()

    def requests() -> Iterator[ingress.PublishStreamRequest]:
        yield ingress.PublishStreamRequest(upload=ingress.Upload(subject=subject, size=12 * MIB))
        for _ in range(11):
            yield ingress.PublishStreamRequest(data=b"x" * MIB)
        kill_workers(server)
        yield ingress.PublishStreamRequest(data=b"x" * MIB)

    with pytest.raises(grpc.RpcError) as raised:
        clients.ingress.PublishStream(requests())
    assert raised.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert stack.messages(subject) == []
    assert eventually(lambda: _published(clients, subject))


def test_a_log_of_an_open_older_interface_says_so(stack: Live, tmp_path: Path) -> None:
    process = start_grpc(stack, {"MTS_GRPC_LEGACY_OPEN": "true"})
    process.stop()
    assert "grpc.legacy_open" in process.log.read_text("utf-8")
