"""What `mts up` remembers under `.mts/`: chosen ports and addresses, and the processes it started."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.private_files import private_folder, write_private
from minitoolstream.stack.processes import Launch, ProcessId

TARANTOOL = "tarantool"
OBJECT_STORE = "object-store"
HOST = "host"
PARTS = (TARANTOOL, OBJECT_STORE, HOST)


class Running(msgspec.Struct, frozen=True):
    """A process we started. `fingerprint` changes with everything it was started with."""

    process: ProcessId
    fingerprint: str


class State(msgspec.Struct):
    """`settings` are read by `load_settings`, below environment and `mts.yaml`."""

    settings: dict[str, Any] = {}
    processes: dict[str, Running] = {}

    def alive(self, part: str) -> Running | None:
        running = self.processes.get(part)
        return running if running and running.process.alive() else None


def load_state(home: Path) -> State:
    path = home / "state.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except msgspec.MsgspecError as error:
        raise MtsError("bad_config", f"{path} is damaged ({error}); remove it and run `mts up`") from None


def save_state(home: Path, state: State) -> None:
    write_private(home / "state.json", msgspec.json.format(msgspec.json.encode(state)))


def log_file(home: Path, part: str) -> Path:
    return home / "logs" / f"{part}.log"


def fingerprint(launch: Launch, *more: str) -> str:
    """Changes when the command, its environment or one of `more` does; shows none of them."""
    content = msgspec.json.encode([list(launch.command), sorted(launch.environ.items()), more])
    return hashlib.sha256(content).hexdigest()


def code_stamp(*folders: Path) -> str:
    """Changes with the files of a folder, so that an upgrade restarts what runs the old code."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".py", ".lua", ".html", ".js", ".css"}:
                about = path.stat()
                digest.update(f"{path}:{about.st_size}:{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@contextmanager
def locked(home: Path, *, waiting: Callable[[], None], timeout: float = 900) -> Iterator[None]:
    """One `mts up` or `mts down` at a time; the lock goes with the process, so it is never stale."""
    private_folder(home)
    handle = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + timeout
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    waiting()
                    told = True
                if time.monotonic() > deadline:
                    raise MtsError("timeout", f"another mts holds {home / 'lock'}") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(handle)
