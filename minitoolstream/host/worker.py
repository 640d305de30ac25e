"""One worker process: accepts connections and serves them, told by its parent when to stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import socket
import sys
from dataclasses import dataclass

import uvloop

from minitoolstream.config import Settings
from minitoolstream.domain.limits import MIB
from minitoolstream.host.app import Host, Wiring
from minitoolstream.host.board import Board
from minitoolstream.host.functions import Functions
from minitoolstream.host.http import HttpConnection
from minitoolstream.host.metrics import Metrics
from minitoolstream.host.turns import Turns

BACKLOG = 2048
STARTUP_FAILURE = 3
"""The exit code of a worker that cannot start: it could not the next time either."""
_LOOK_AGAIN = 0.05
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
log = logging.getLogger("mts.host")


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
        # What is loaded by now stays for ever, and a request leaves almost no cycles: collect little at a time, and
        # all of it hardly ever: thousands who wait are 200,000 objects, which take 100 ms of everybody's.
        gc.collect()
        gc.freeze()
        gc.set_threshold(1_000, 10, 500)
        _keep_freed_memory()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(host, metrics, parent))

    async def _serve(self, host: Host, metrics: Metrics, parent: int) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_reader(parent, stopping.set)
        try:
            await host.start()
        except Exception:
            log.exception("the worker cannot start")
            sys.exit(STARTUP_FAILURE)
        connections: set[HttpConnection] = set()
        turns = Turns()
        metrics.connections = lambda: len(connections)
        accepting = await loop.create_server(
            lambda: HttpConnection(host.serve, connections, turns), sock=self.listener, backlog=BACKLOG
        )
        await stopping.wait()
        loop.remove_reader(parent)
        host.drain()
        accepting.close()
        await _finish(connections, self.drain_seconds)
        await host.stop()


async def _finish(connections: set[HttpConnection], seconds: float) -> None:
    """Close what is idle, again and again: one may have been accepted a moment before. What runs may end."""
    deadline = asyncio.get_running_loop().time() + seconds
    while connections and asyncio.get_running_loop().time() < deadline:
        for connection in list(connections):
            connection.finish()
        await asyncio.sleep(_LOOK_AGAIN)
    for connection in list(connections):
        connection.abort()


def _keep_freed_memory() -> None:
    """Bodies and packs come and go by the megabyte: giving each back to the system and taking it again costs a batch
    hundreds of page faults. Where the C library has no such knob, nothing is lost."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 64 * MIB)
