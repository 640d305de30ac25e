"""What `mts up` remembers under `.mts/`: chosen ports and addresses, and the processes it started."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.private_files import write_private
from minitoolstream.stack.processes import Launch, ProcessId

TARANTOOL = "tarantool"
OBJECT_STORE = "object-store"
HOST = "host"
GRPC = "grpc"
CATALOG = "catalog"
GRPC_PORTS = ("grpc.ingress_port", "grpc.egress_port")
WAITING = "another `mts up` or `mts down` is running here, waiting for it"
PARTS = (TARANTOOL, OBJECT_STORE, CATALOG, HOST, GRPC)
STORES = ("minio", "ministack")
MOVED_ASIDE = "tarantool.[0-9]*-[0-9]*"
"""What Tarantool had when `mts restore --replace` or `mts rebuild --replace` came."""


class Running(msgspec.Struct, frozen=True):
    """A process we started. `fingerprint` changes with everything it was started with."""

    process: ProcessId
    fingerprint: str


class State(msgspec.Struct):
    """`settings` are read by `load_settings`, below environment and `mts.yaml`."""

    settings: dict[str, Any] = {}
    processes: dict[str, Running] = {}
    bucket: str = ""
    """Where the payloads are, in an object store that `mts up` started."""
    storage_port: int = 0
    """Where the catalog's Cassandra would meet others of its kind."""

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
    # PATH ends with the caller's: another shell, or an activated virtualenv, is no reason to restart.
    environ = sorted((name, value) for name, value in launch.environ.items() if name != "PATH")
    content = msgspec.json.encode([list(launch.command), environ, more])
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
