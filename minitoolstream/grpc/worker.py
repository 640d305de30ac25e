"""One worker process: both servers on one event loop, told by its parent when to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import uvloop
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector

from minitoolstream.bootstrap import open_core
from minitoolstream.config import Settings
from minitoolstream.grpc.servers import GrpcServer, make_servers
from minitoolstream.grpc.turns import Turns
from minitoolstream.host.board import Board
from minitoolstream.host.health import problem_of
from minitoolstream.host.keep_ceiling import keep_ceiling, open_sequences
from minitoolstream.host.metrics import Metrics
from minitoolstream.host.worker import STARTUP_FAILURE
from minitoolstream.services.core import Core

LOOK_EVERY = 2.0
log = logging.getLogger("mts.grpc")


@dataclass(frozen=True, slots=True)
class GrpcWorker:
    """What all workers share; made before they are forked."""

    settings: Settings
    board: Board
    turns: Turns
    ingress: str
    egress: str
    drain_seconds: float

    def run(self, slot: int, parent: int) -> None:
        """Serve until SIGTERM, or until `parent`, the read end of a pipe, says that the parent is gone."""
        # What is loaded by now stays for ever: collect rarely, and only what came later.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        metrics = Metrics(self.board, slot)
        if slot == 0 and (port := self.settings["grpc.metrics_port"]):
            _show(metrics, self.settings["server.host"], port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(metrics, parent))

    async def _serve(self, metrics: Metrics, parent: int) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_reader(parent, stopping.set)
        core = await open_core(self.settings, metrics)
        try:
            servers = make_servers(core, metrics, self.turns, self.ingress, self.egress)
            for server in servers:
                await server.start()
        except Exception:
            log.exception("the worker cannot start")
            sys.exit(STARTUP_FAILURE)
        await open_sequences(core)
        tasks = [asyncio.create_task(keep_ceiling(core)), asyncio.create_task(_keep_states(core, servers, metrics))]
        await stopping.wait()
        loop.remove_reader(parent)
        await drain(core, servers, self.drain_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await core.close()


async def drain(core: Core, servers: Sequence[GrpcServer], seconds: float) -> None:
    """No new calls; what only waits is told to come back, what runs may end."""
    core.draining.set()
    await asyncio.gather(*(server.stop(seconds) for server in servers))


class _Scraped(Collector):
    """What all workers counted, at the time of a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families().collect()


def _show(metrics: Metrics, host: str, port: int) -> None:
    """In a thread of its own, in one worker: what the others counted is read from the board."""
    registry = CollectorRegistry()
    registry.register(_Scraped(metrics))
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        log.warning("no metrics on port %d: %s", port, error.strerror)


async def _keep_states(core: Core, servers: Sequence[GrpcServer], metrics: Metrics) -> None:
    """Health for balancers: whether a publish would work now. And what was counted, for whoever shows it."""
    known = ""
    while True:
        metrics.publish()
        problem = await problem_of(core)
        if problem != known:
            log.warning("not serving: %s", problem) if problem else log.info("serving again")
        known = problem
        for server in servers:
            server.tell(serving=not problem)
        await asyncio.sleep(LOOK_EVERY)
