"""The two servers: publishing on one port, reading on the other, health and reflection on both."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from minitoolstream.api.auth import BearerGuard
from minitoolstream.config import Settings
from minitoolstream.domain.limits import KIB
from minitoolstream.grpc.calls import Gate, Told, handlers
from minitoolstream.grpc.egress import Egress
from minitoolstream.grpc.ingress import Ingress
from minitoolstream.grpc.legacy import LegacyEgress, LegacyIngress
from minitoolstream.grpc.open_to_all import Health, Reflection
from minitoolstream.grpc.slots import Slots
from minitoolstream.grpc.tls import server_credentials, tls_files
from minitoolstream.grpc.turns import Turns
from minitoolstream.host.exchange import request_ids
from minitoolstream.host.metrics import EGRESS, INGRESS, Metrics
from minitoolstream.pb import egress_v1_pb2, ingress_v1_pb2, legacy_pb2
from minitoolstream.services.core import Core

CALLS_AT_ONCE = 10_000
READ_AT_ONCE = 64  # requests that are not complete yet, of up to 4 MiB each
_ROOM = 64 * KIB  # of a call, beside its payload
_PING_TIMEOUT_MS = 20_000
_LEAST_PING_MS = 5_000
_INGRESS, _EGRESS = "IngressService", "EgressService"


def make_servers(
    core: Core, metrics: Metrics, turns: Turns, ingress: str, egress: str
) -> tuple[GrpcServer, GrpcServer]:
    """Bound to these addresses, not started yet."""
    settings, older = core.settings, legacy_pb2.DESCRIPTOR.services_by_name
    publisher, reader, room = Ingress(core), Egress(core), Slots(READ_AT_ONCE, "requests")
    publishing = [
        handlers(
            ingress_v1_pb2.DESCRIPTOR.services_by_name[_INGRESS],
            publisher,
            _gate(settings, metrics, INGRESS, Told.IN_ANSWER, room),
        ),
        handlers(
            older[_INGRESS],
            LegacyIngress(publisher),
            _gate(settings, metrics, INGRESS, Told.ALL_IN_ANSWER, room, is_legacy=True),
        ),
    ]
    reading = [
        handlers(
            egress_v1_pb2.DESCRIPTOR.services_by_name[_EGRESS],
            reader,
            _gate(settings, metrics, EGRESS, Told.IN_ANSWER, room),
        ),
        handlers(
            older[_EGRESS],
            LegacyEgress(core, reader.answers, turns),
            _gate(settings, metrics, EGRESS, Told.UNKNOWN, room, is_legacy=True),
        ),
    ]
    return GrpcServer(settings, ingress, publishing, _INGRESS), GrpcServer(settings, egress, reading, _EGRESS)


def _gate(
    settings: Settings, metrics: Metrics, side: str, told: Told, reading: Slots, *, is_legacy: bool = False
) -> Gate:
    is_open = is_legacy and settings["grpc.legacy_open"]
    guard = None if is_open else BearerGuard(settings.secret("server.token"), "api")
    return Gate(guard, told, reading, lambda *call: metrics.request(side, *call), request_ids())


class GrpcServer:
    """One port. `port` is the real one when the address had 0."""

    def __init__(self, settings: Settings, address: str, services: Sequence[grpc.GenericRpcHandler], name: str) -> None:
        self._server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=CALLS_AT_ONCE)
        self._server.add_generic_rpc_handlers(services)
        names = (f"minitoolstream.v1.{name}", f"minitoolstream.{name}")
        self._health = Health(names)
        self._server.add_generic_rpc_handlers([self._health.handlers()])
        shown = Reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(shown, self._server)  # type: ignore[no-untyped-call]
        files = tls_files(settings)
        self.port = (
            self._server.add_insecure_port(address)
            if files is None
            else self._server.add_secure_port(address, server_credentials(files))
        )

    async def start(self) -> None:
        await self._server.start()

    def tell(self, *, serving: bool) -> None:
        """What the health service says."""
        self._health.tell(serving=serving)

    async def stop(self, seconds: float) -> None:
        """Calls that run may take so long; then they are cancelled."""
        self._health.stop()
        await self._server.stop(seconds)


def _options(settings: Settings) -> list[tuple[str, int]]:
    answer = int(settings["grpc.message_limit"])
    return [
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", settings["grpc.max_concurrent_streams"]),
        ("grpc.max_connection_idle_ms", int(1000 * settings["grpc.max_connection_idle"])),
        ("grpc.keepalive_time_ms", int(1000 * settings["grpc.keepalive"])),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),  # which ends a silent one in fact (1.85); else a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_MS),
        ("grpc.max_receive_message_length", max(answer, settings["server.inline_limit"]) + _ROOM),
        ("grpc.max_send_message_length", answer),
        ("grpc.http2.bdp_probe", 0),  # else windows, and what lies in them, grow to many MiB for each stream
    ]
