"""`mts serve`: bind, fork the workers, watch over them."""

from __future__ import annotations

import errno
import gc
import logging
import os
import resource
import socket
import time

from minitoolstream.api.auth import BearerGuard
from minitoolstream.bootstrap import open_core
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.host import logs
from minitoolstream.host.app import Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import Functions, load_functions
from minitoolstream.host.supervisor import Supervisor
from minitoolstream.host.worker import BACKLOG, Worker
from minitoolstream.net.addresses import is_loopback
from minitoolstream.services.jobs import JOBS
from minitoolstream.services.settle_in import settle_in
from minitoolstream.services.write_journal import write_journal

DRAIN_SECONDS = 25.0
_WORKER_DRAIN_SECONDS = DRAIN_SECONDS - 3
_BIND_SECONDS = 3.0
log = logging.getLogger("mts.host")


def worker_count(settings: Settings) -> int:
    """As set, or one for two cores: the others are for the object store and Tarantool."""
    return int(settings["server.workers"]) or max(1, (os.cpu_count() or 2) // 2)


def serve(settings: Settings, functions: Functions | None = None, wiring: Wiring | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 when everything begun was finished.

    MtsError when it cannot start: no token, a port in use, a missing function. Tests hand in functions and wiring
    of their own.
    """
    logs.configure(settings)
    _check_tokens(settings)
    functions = functions or load_functions()
    wiring = wiring or Wiring(open_core, JOBS, settle_in, write_journal)
    listener = _listen(settings["server.host"], settings["server.port"])
    _raise_open_files()
    host, port = listener.getsockname()[:2]
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not is_loopback(host):
        log.warning("other machines can reach %s, and this server speaks no TLS: put a proxy before it", host)
    workers = worker_count(settings)
    worker = Worker(settings, functions, wiring, Board(workers), listener, _WORKER_DRAIN_SECONDS)
    gc.freeze()

    shown = f"[{host}]" if ":" in host else host
    log.info("listening on http://%s:%d with %d workers", shown, port, workers)
    code = Supervisor(worker.run, workers, deadline=DRAIN_SECONDS, on_stop=listener.close).serve()
    log.info("stopped")
    return code


def _check_tokens(settings: Settings) -> None:
    tokens = {"server.token": settings.secret("server.token")}
    if not settings["object_store.queue_url"]:
        tokens["server.webhook_token"] = settings.secret("server.webhook_token")
    for key, token in tokens.items():
        if BearerGuard(token, key).is_short:
            log.warning("%s is short; a longer one cannot be guessed", key)


def _listen(host: str, port: int) -> socket.socket:
    """One socket for all workers: when one of them dies, no connection is waiting in a queue of its own."""
    deadline = time.monotonic() + _BIND_SECONDS
    while True:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            # The workers of a host that was killed need a moment to leave.
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                why = error.strerror or error
                raise MtsError("bad_config", f"cannot listen on {host}:{port}: {why}") from None
            time.sleep(0.1)


def _raise_open_files() -> None:
    """Every connection is an open file, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
