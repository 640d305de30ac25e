"""A private stack to measure: Tarantool, MinIO and the host, in a folder on disk that goes with the run."""

from __future__ import annotations

import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import generator
from bench.processes import cpu_seconds
from minitoolstream.stack.credentials import new_secret
from minitoolstream.stack.ports import free_port, listens
from minitoolstream.stack.private_files import private_folder, write_private
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import cache_folder
from tests.servers import MinioServer, Server, TarantoolServer, start_minio, start_tarantool

MEMORY = 512 * 2**20


@dataclass
class Host(Server):
    url: str = ""

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass
class Sink(Server):
    """A webhook that does nothing: what synchronous events cost with nobody behind them."""

    ID = "SINK"
    port: int = 0

    def ready(self) -> bool:
        return listens("127.0.0.1", self.port)

    @property
    def environ(self) -> dict[str, str]:
        """For MinIO."""
        url = f"http://127.0.0.1:{self.port}"
        return {f"MINIO_NOTIFY_WEBHOOK_ENABLE_{self.ID}": "on", f"MINIO_NOTIFY_WEBHOOK_ENDPOINT_{self.ID}": url}


@dataclass
class Stack:
    folder: Path
    tarantool: TarantoolServer
    minio: MinioServer
    host: Host
    token: str
    workers: int

    @property
    def home(self) -> Path:
        """`MTS_HOME` for the CLI and SDK."""
        return self.folder / "home"

    def cpu(self) -> dict[str, float]:
        """CPU seconds used so far, by part."""
        parts = {"host": self.host, "Tarantool": self.tarantool, "MinIO": self.minio}
        return {name: cpu_seconds(server.pid) for name, server in parts.items()}

    @contextmanager
    def another_host(self, workers: int) -> Iterator[Host]:
        """A second host on the same Tarantool and store."""
        host = _host(self.folder, f"host-{workers}", free_port(), workers)
        try:
            host.start()
            yield host
        finally:
            host.stop()


@contextmanager
def running_stack(workers: int) -> Iterator[Stack]:
    """All servers, ready; stopped and their data deleted at the end."""
    root = cache_folder() / "bench"
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=root))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        port, token, webhook_token = free_port(), new_secret(), new_secret()
        url = f"http://127.0.0.1:{port}"
        tarantool = start_tarantool(folder / "metadata", memory=MEMORY)
        cleanup.callback(tarantool.kill)
        sink = _sink(folder)
        sink.start()
        cleanup.callback(sink.kill)
        minio = start_minio(folder / "payloads", f"{url}/hooks/object-created", webhook_token, sink.environ)
        cleanup.callback(minio.kill)
        secrets = {"server.token": token, "server.webhook_token": webhook_token}
        _remember(folder, tarantool, minio, url, secrets)
        host = _host(folder, "host", port, workers)
        host.start()
        cleanup.callback(host.stop)
        yield Stack(folder, tarantool, minio, host, token, workers)


def _remember(folder: Path, tarantool: TarantoolServer, minio: MinioServer, url: str, tokens: dict[str, str]) -> None:
    """What `mts up` would leave under `.mts/`, so that host, CLI and SDK find everything by `MTS_HOME`."""
    home = private_folder(folder / "home")
    state = {
        "server.urls": [url],
        "tarantool.address": tarantool.address,
        "minio.endpoint": minio.endpoint,
        "minio.bucket": minio.bucket,
        "object_store.kind": "minio",
    }
    secrets = {
        **tokens,
        "tarantool.password": tarantool.password,
        "minio.access_key": minio.access_key,
        "minio.secret_key": minio.secret_key,
    }
    for name, settings in (("state.json", state), ("secrets.json", secrets)):
        write_private(home / name, msgspec.json.encode({"settings": settings}))


def _sink(folder: Path) -> Sink:
    port = free_port()
    command = [str(generator.build().program), "sink", f"127.0.0.1:{port}"]
    return Sink(Launch("sink", command, folder / "sink.log"), port=port)


def _host(folder: Path, name: str, port: int, workers: int) -> Host:
    launch = Launch(
        name="host",
        command=[sys.executable, "-m", "minitoolstream.cli.main", "serve"],
        log=folder / f"{name}.log",
        environ={
            "MTS_HOME": str(folder / "home"),
            "MTS_SERVER_PORT": str(port),
            "MTS_SERVER_WORKERS": str(workers),
            "MTS_LOGGING_LEVEL": "warning",
            "MTS_TRASH_GRACE": "0s",  # so that deleting is part of what is measured
        },
    )
    return Host(launch, url=f"http://127.0.0.1:{port}")
