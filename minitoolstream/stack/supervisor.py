"""Sees to it that parts run with the settings of now; takes back what it started when one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from minitoolstream.stack.processes import Launch, kill_orphans, start, stop, wait_until_ready
from minitoolstream.stack.state import Running, State, fingerprint, save_state

_ANSWERS_WITHIN = 10.0


class Supervisor:
    def __init__(self, home: Path, state: State) -> None:
        self.home = home
        self.state = state
        self._started: list[str] = []

    def ensure(
        self, part: str, launch: Launch, ready: Callable[[], bool], *, stamp: str = "", timeout: float = 60
    ) -> str:
        """Start the part unless it runs as it should; says in a word what was done."""
        mark = fingerprint(launch, stamp)
        outcome = "started"
        running = self.state.alive(part)
        if running:
            if running.fingerprint == mark and _answers(ready):
                return "already runs"
            changed = running.fingerprint != mark
            outcome = "restarted, its settings or code changed" if changed else "restarted, it did not answer"
            stop(running.process)
        elif part in self.state.processes:
            outcome = "started again, it had ended"
            kill_orphans(self.state.processes[part].process)
        self._start(part, launch, mark, ready, timeout)
        return outcome

    def _start(self, part: str, launch: Launch, mark: str, ready: Callable[[], bool], timeout: float) -> None:
        log_from = launch.log.stat().st_size if launch.log.exists() else 0
        process = start(launch)
        self._started.append(part)
        self.state.processes[part] = Running(process, mark)
        # Written before waiting: whatever happens now, `mts down` knows the process.
        self.save()
        wait_until_ready(process, launch, ready, timeout=timeout, log_from=log_from)

    def stop(self, part: str) -> bool:
        """Stop a part of ours; False when it did not run."""
        running = self.state.processes.pop(part, None)
        stopped = bool(running and stop(running.process))
        self.save()
        return stopped

    def undo(self) -> list[str]:
        """Stop what this run started, last first."""
        undone = list(reversed(self._started))
        for part in undone:
            self.stop(part)
        self._started.clear()
        return undone

    def save(self) -> None:
        save_state(self.home, self.state)


def _answers(ready: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _ANSWERS_WITHIN
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
