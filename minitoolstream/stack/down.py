"""What `mts down` does: stops what `mts up` started here, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from minitoolstream.stack.console import Console
from minitoolstream.stack.lock import locked
from minitoolstream.stack.state import PARTS, WAITING, load_state
from minitoolstream.stack.supervisor import Supervisor


def down(home: Path, console: Console, *, purge: bool = False) -> list[str]:
    """The parts that were stopped: the host first, so that it can finish what it has. Data is kept."""
    if not home.is_dir():
        return []
    with locked(home / "lock", waiting=lambda: console.say(WAITING)):
        supervisor = Supervisor(home, load_state(home))
        stopped = []
        for part in reversed(PARTS):
            if supervisor.state.alive(part):
                with console.step(part) as step:
                    step.update("stopping")
                    supervisor.stop(part)
                    step.done("stopped")
                stopped.append(part)
        supervisor.state.processes.clear()
        supervisor.save()
        if purge:
            shutil.rmtree(home)
        return stopped
