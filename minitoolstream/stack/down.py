"""What `mts down` does: stops what `mts up` started here, and nothing else."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.console import Console
from minitoolstream.stack.lock import locked
from minitoolstream.stack.state import MOVED_ASIDE, PARTS, STORES, TARANTOOL, WAITING, load_state, log_file
from minitoolstream.stack.supervisor import Supervisor


def down(home: Path, console: Console, *, purge: bool = False) -> list[str]:
    """The parts that were stopped: the host first, so that it can finish what it has. Data is kept."""
    if not (home / "state.json").exists():
        if purge and home.exists():
            raise MtsError(
                "bad_request",
                f"{home} has no state.json: it is no folder of a stack, and nothing was deleted",
                {"hint": "check MTS_HOME; what `mts up` did not make is yours to delete"},
            )
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
            _delete(home)
        return stopped


def _delete(home: Path) -> None:
    """Only what `mts up` makes, since MTS_HOME may name a folder that holds other things too."""
    for name in (TARANTOOL, *STORES, "minio-config", "cassandra"):
        _remove(home / "data" / name)
    for pattern in (MOVED_ASIDE, "pipeline_db.sqlite*", "catalog.sqlite*"):
        for path in (home / "data").glob(pattern):
            _remove(path)
    for part in PARTS:
        _remove(log_file(home, part))
    # Last the one that marks the folder as ours: what fails before can be tried again.
    for name in ("token", "tarantool-password", "secrets.json", "lock", "state.json"):
        _remove(home / name)
        for unfinished in home.glob(f".{name}.*"):
            _remove(unfinished)
    for folder in (home / "data", home / "logs", home):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
