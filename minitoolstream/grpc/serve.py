"""`mts grpc`: take the ports, fork the workers, watch over them."""

from __future__ import annotations

import gc
import logging
import socket
from contextlib import ExitStack

from minitoolstream.api.auth import BearerGuard
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.grpc.tls import tls_files
from minitoolstream.grpc.turns import Turns
from minitoolstream.host import logs
from minitoolstream.host.board import Board
from minitoolstream.host.serve import DRAIN_SECONDS, worker_count
from minitoolstream.host.supervisor import Supervisor
from minitoolstream.net.addresses import is_loopback

_WORKER_DRAIN_SECONDS = DRAIN_SECONDS - 5
log = logging.getLogger("mts.grpc")


def serve_grpc(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 when everything begun was finished. MtsError when it cannot
    start: no token, a certificate that cannot be used, a port in use."""
    logs.configure(settings)
    BearerGuard(settings.secret("server.token"), "server.token")
    if (files := tls_files(settings)) is not None:
        files.read()
    with ExitStack() as held:
        ports = [held.enter_context(_reserved(settings, key)) for key in ("grpc.ingress_port", "grpc.egress_port")]
        ingress, egress = (_shown(settings["server.host"], port.getsockname()[1]) for port in ports)
        _warn(settings)
        # Here and not above: in this process gRPC must not run, its workers are forked.
        from minitoolstream.grpc.worker import GrpcWorker

        workers = worker_count(settings)
        worker = GrpcWorker(settings, Board(workers), Turns(), ingress, egress, _WORKER_DRAIN_SECONDS)
        gc.freeze()
        log.info("ingress on %s, egress on %s, with %d workers", ingress, egress, workers)
        code = Supervisor(worker.run, workers, deadline=DRAIN_SECONDS, on_stop=held.close).serve()
    log.info("stopped")
    return code


def _warn(settings: Settings) -> None:
    host = settings["server.host"]
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not is_loopback(host) and tls_files(settings) is None:
        log.warning(
            "other machines can reach %s, and this server speaks no TLS: set grpc.certificate and grpc.key, or put a "
            "proxy or a mesh before it",
            host,
        )
    if settings["grpc.legacy_open"]:
        who = "whoever is on this machine" if is_loopback(host) else f"WHOEVER REACHES {host}"
        log.warning("grpc.legacy_open: %s publishes and reads without a token over the older interface", who)


def _reserved(settings: Settings, key: str) -> socket.socket:
    """A port that is taken but not listened on: each worker listens there itself, and the system spreads connections
    among them."""
    host, port = settings["server.host"], settings[key]
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _must_be_free(family, address[:2])
        taken.bind(address[:2])
    except OSError as error:
        why = error.strerror or error
        raise MtsError("bad_config", f"cannot listen on {host}:{port} ({key}): {why}") from None
    return taken


def _must_be_free(family: int, address: tuple[object, ...]) -> None:
    """Another `mts grpc` would share the port with us, and take half of our clients."""
    if address[1]:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
