"""One worker process: uvicorn with our application, told by its parent when to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from minitoolstream.config import Settings
from minitoolstream.host.asgi import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import Functions
from minitoolstream.host.metrics import Metrics
from minitoolstream.host.protocol import BoundedHttp

KEEP_ALIVE_SECONDS = 75
"""The object store keeps its webhook connections for 15 s; who closes first must be the client."""
BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Worker:
    """What all workers share; made before they are forked."""

    settings: Settings
    functions: Functions
    wiring: Wiring
    board: Board
    listener: socket.socket
    drain_seconds: float

    def run(self, slot: int, parent: int) -> None:
        """Serve until SIGTERM, or until `parent`, the read end of a pipe, says that the parent is gone."""
        metrics = Metrics(self.board, slot)
        host = Host(self.settings, self.functions, metrics, self.wiring)
        server = _Server(_config(host, self.drain_seconds), host, parent)
        metrics.connections = lambda: len(server.server_state.connections)
        # What is loaded by now stays for ever, and a request leaves almost no cycles: collect rarely, and only
        # what came later.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        server.run([self.listener])


def _config(host: Host, drain_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        host,
        loop="uvloop",
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(drain_seconds),
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, host: Host, parent: int) -> None:
        super().__init__(config)
        self._host = host
        self._parent = parent

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signal again at the end, and the exit code would not be 0."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_reader(self._parent, self._stop)
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = asyncio.create_task(self._close_connections())
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    async def _close_connections(self) -> None:
        """uvicorn looks once: a connection accepted a moment before would then hold up the end."""
        while True:
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(0.1)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._parent)
        self.should_exit = True
        self._host.drain()
