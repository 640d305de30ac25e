"""gRPC for tests: the servers in this process on fakes, or `mts grpc` on a real stack; and clients for both."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from minitoolstream.connector._stubs import Stub
from minitoolstream.grpc.servers import GrpcServer, make_servers
from minitoolstream.grpc.turns import Turns
from minitoolstream.host.board import Board
from minitoolstream.host.metrics import Metrics
from minitoolstream.pb import egress_v1_pb2, ingress_v1_pb2, legacy_pb2
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from tests.core_kit import CoreKit, core_kit
from tests.live import Live
from tests.servers import Server

TOKEN = "a-token-for-the-tests"
HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]
V1_INGRESS = ingress_v1_pb2.DESCRIPTOR.services_by_name["IngressService"]
V1_EGRESS = egress_v1_pb2.DESCRIPTOR.services_by_name["EgressService"]
OLD_INGRESS = legacy_pb2.DESCRIPTOR.services_by_name["IngressService"]
OLD_EGRESS = legacy_pb2.DESCRIPTOR.services_by_name["EgressService"]


class Calls:
    """A service's methods that send the token with each call."""

    def __init__(self, stub: Stub, token: str | None) -> None:
        self._stub = stub
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stub, name)

        def call(request: Any, timeout: float = 60, metadata: Any = ()) -> Any:
            return method(request, timeout=timeout, metadata=(*self._metadata, *metadata))

        return call


class Clients:
    """All services of a pair of servers; `channel` makes channels to wait on, or of `grpc.aio`."""

    def __init__(
        self, ingress: str, egress: str, token: str | None = TOKEN, channel: Any = grpc.insecure_channel
    ) -> None:
        # Windows that do not grow: how much is under way when a client stops reading must not depend on the machine.
        options = (("grpc.http2.bdp_probe", 0),)
        self.channels = [channel(ingress, options=options), channel(egress, options=options)]
        self.ingress: Any = Calls(Stub(self.channels[0], V1_INGRESS), token)
        self.egress: Any = Calls(Stub(self.channels[1], V1_EGRESS), token)
        self.old_ingress: Any = Calls(Stub(self.channels[0], OLD_INGRESS), token)
        self.old_egress: Any = Calls(Stub(self.channels[1], OLD_EGRESS), token)
        self.health: Any = Calls(Stub(self.channels[0], HEALTH), None)


@dataclass
class GrpcKit:
    """Servers on fakes, in this process and on its event loop."""

    kit: CoreKit
    metrics: Metrics
    servers: tuple[GrpcServer, GrpcServer]
    clients: Clients
    open: Clients

    @property
    def addresses(self) -> tuple[str, str]:
        first, second = (f"127.0.0.1:{server.port}" for server in self.servers)
        return first, second


@asynccontextmanager
async def grpc_kit(**changes: Any) -> AsyncIterator[GrpcKit]:
    """`open` are clients without a token."""
    kit = core_kit(server__token=TOKEN, **changes)
    metrics = Metrics(Board(1), 0)
    servers = make_servers(kit.core, metrics, Turns(), "127.0.0.1:0", "127.0.0.1:0")
    for server in servers:
        await server.start()
        server.tell(serving=True)
    ingress, egress = (f"127.0.0.1:{server.port}" for server in servers)
    clients = Clients(ingress, egress, TOKEN, grpc.aio.insecure_channel)
    without = Clients(ingress, egress, None, grpc.aio.insecure_channel)
    try:
        yield GrpcKit(kit, metrics, servers, clients, without)
    finally:
        for channel in (*clients.channels, *without.channels):
            await channel.close()
        kit.core.draining.set()
        for server in servers:
            await server.stop(0)
        await kit.core.close()


@dataclass
class GrpcProcess(Server):
    """`mts grpc` on a real stack."""

    ingress: str = ""
    egress: str = ""
    token: str = field(default="", repr=False)
    roots: bytes | None = None
    """Who signed its certificate, if it speaks TLS."""

    def channel(self, address: str, **more: Any) -> grpc.Channel:
        if self.roots is None:
            return grpc.insecure_channel(address, **more)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self.roots), **more)

    def ready(self) -> bool:
        for address in (self.ingress, self.egress):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))):
                    return False
        with self.channel(self.egress) as channel:
            try:
                answer = Stub(channel, HEALTH).Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def clients(self) -> Clients:
        return Clients(self.ingress, self.egress, self.token, self.channel)


def start_grpc(live: Live, extra_env: Mapping[str, str] | None = None, *, roots: bytes | None = None) -> GrpcProcess:
    ports = free_port(), free_port()
    environ = {
        **live.environ,
        "MTS_SERVER_WORKERS": "1",
        "MTS_GRPC_INGRESS_PORT": str(ports[0]),
        "MTS_GRPC_EGRESS_PORT": str(ports[1]),
        "MTS_HOME": str(live.folder / f"grpc-{ports[0]}"),
        **(extra_env or {}),
    }
    launch = Launch(
        f"grpc-{ports[0]}",
        [sys.executable, "-m", "minitoolstream.cli.main", "grpc"],
        live.folder / f"grpc-{ports[0]}.log",
        environ=environ,
    )
    ingress, egress = (f"127.0.0.1:{port}" for port in ports)
    process = GrpcProcess(launch, ingress=ingress, egress=egress, token=live.token, roots=roots)
    process.start()
    return process
