"""Keeps a number of worker processes alive, and ends them in order.

They are forked: ready in milliseconds, their code shared. None outlives this process, and one that does not end in time
is killed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from time import monotonic

from minitoolstream.domain.pauses import doubled
from minitoolstream.host.worker import STARTUP_FAILURE

_STABLE_SECONDS = 5.0
_MAX_PAUSE = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_fork = multiprocessing.get_context("fork")
log = logging.getLogger("mts.supervisor")

Run = Callable[[int, int], None]


@dataclass(slots=True)
class _Worker:
    slot: int
    process: BaseProcess | None = None
    started: float = 0.0
    failures: int = 0
    start_at: float = 0.0


class Supervisor:
    """`run(slot, parent)` is what a worker does; `parent` is readable once this process is gone.

    `on_stop` is called in this process before the workers are told to stop.
    """

    def __init__(self, run: Run, workers: int, *, deadline: float, on_stop: Callable[[], None]) -> None:
        self._run = run
        self._workers = [_Worker(slot) for slot in range(workers)]
        self._deadline = deadline
        self._on_stop = on_stop
        self._alive, self._held = os.pipe()
        self._wake, self._waker = socket.socketpair()
        self._signals = 0

    def serve(self) -> int:
        """Until SIGTERM or SIGINT; 0 when every worker finished what it had begun."""
        for end in (self._wake, self._waker):
            end.setblocking(False)
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            failed = self._keep_running()
            self._on_stop()
            drained = self._end_all()
            return 0 if drained and not failed else 1
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._wake.close()
            self._waker.close()
            os.close(self._alive)
            os.close(self._held)

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _keep_running(self) -> bool:
        """Start workers and start them again; True when one cannot start at all."""
        while not self._signals:
            now = monotonic()
            for worker in self._workers:
                if worker.process is None and worker.start_at <= now:
                    self._start(worker)
            waiting = [worker.start_at - now for worker in self._workers if worker.process is None]
            running = [worker.process for worker in self._workers if worker.process is not None]
            self._wait(running, min(waiting, default=None))
            for worker in self._workers:
                if worker.process is None or worker.process.is_alive() or self._signals:
                    continue
                if worker.process.exitcode == STARTUP_FAILURE:
                    worker.process = None
                    return True
                self._plan_restart(worker, worker.process)
        return False

    def _start(self, worker: _Worker) -> None:
        worker.process = _fork.Process(target=self._in_child, args=(worker.slot,))
        # One that met the child while it still has our handler would be lost, and the child go on.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            worker.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        worker.started = monotonic()

    def _in_child(self, slot: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._wake.close()
        self._waker.close()
        # With our copy open the pipe would never end.
        os.close(self._held)
        self._run(slot, self._alive)

    def _plan_restart(self, worker: _Worker, ended: BaseProcess) -> None:
        lived = monotonic() - worker.started
        worker.failures = 0 if lived > _STABLE_SECONDS else worker.failures + 1
        pause = doubled(0.1, worker.failures - 1, _MAX_PAUSE) if worker.failures else 0.0
        log.error(
            "worker %d ended with %s after %.1f s, starting it again",
            ended.pid,
            ended.exitcode,
            lived,
        )
        worker.start_at = monotonic() + pause
        worker.process = None

    def _wait(self, processes: list[BaseProcess], timeout: float | None) -> None:
        """Until one of them has ended, a signal comes, or time is up."""
        sentinels = [process.sentinel for process in processes]
        wait([*sentinels, self._wake], None if timeout is None else max(0.0, timeout))
        with suppress(BlockingIOError):
            self._wake.recv(4096)

    def _end_all(self) -> bool:
        """False when some had to be killed: the deadline passed, or a second signal asked for it."""
        running = [worker.process for worker in self._workers if worker.process is not None]
        for process in running:
            process.terminate()
        deadline, seen = monotonic() + self._deadline, self._signals
        while alive := [process for process in running if process.is_alive()]:
            if monotonic() > deadline or self._signals > max(seen, 1):
                break
            self._wait(alive, deadline - monotonic())
        late = [process for process in running if process.is_alive()]
        for process in late:
            log.error("worker %d did not end in time and is killed", process.pid)
            process.kill()
        for process in running:
            process.join()
        return not late
