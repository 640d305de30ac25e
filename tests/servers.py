"""Real servers for tests, started by the code of `mts up`: private folder, free port, own credentials."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import bucket as buckets
from minitoolstream.stack import cassandra, mariadb, minio, tarantool
from minitoolstream.stack.credentials import new_access_key, new_secret
from minitoolstream.stack.get_cassandra import find_cassandra, get_cassandra
from minitoolstream.stack.get_mariadb import find_mariadb
from minitoolstream.stack.get_minio import find_minio
from minitoolstream.stack.get_tarantool import find_tarantool
from minitoolstream.stack.minio import Credentials, Webhook
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.private_files import write_private
from minitoolstream.stack.processes import Launch, ProcessId, send, start, stop, wait_gone, wait_until_ready
from minitoolstream.stack.program import Program
from tests.certificates import certificate

READY_WITHIN = 90.0
UNMEASURED = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}
"""The environment of processes whose coverage would tell nothing: to begin with it takes longer than most imports."""


@dataclass
class Server:
    """A child process that a test may stop, kill and start again on the same port and data."""

    launch: Launch
    process: ProcessId | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.launch.name} is not running"
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.launch.log

    def start(self) -> None:
        if self.process and self.process.alive():
            return
        self.process = start(self.launch)
        atexit.register(self.kill)
        try:
            wait_until_ready(self.process, self.launch, self.ready, timeout=READY_WITHIN)
        except MtsError as error:
            self.kill()
            raise AssertionError("\n".join([error.message, *error.details["log_tail"]])) from None

    def ready(self) -> bool:
        raise NotImplementedError

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self.process:
            stop(self.process)
        self.process = None

    def kill(self) -> None:
        """`kill -9`: no chance to write anything."""
        if self.process and send(self.process, signal.SIGKILL):
            wait_gone(self.process, 30)
        self.process = None


@dataclass
class TarantoolServer(Server):
    address: str = ""
    user: str = "mts"
    password: str = field(default="", repr=False)

    def ready(self) -> bool:
        return tarantool.login_problem(self.address, self.user, self.password) is None


@dataclass
class StoreServer(Server):
    """An object store with its bucket."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    bucket: str = "minitoolstream"
    region: str = "us-east-1"
    root: Credentials = field(default_factory=lambda: Credentials(new_access_key(), new_secret()), repr=False)
    _s3: Any = field(default=None, init=False, repr=False)

    def s3(self) -> Any:
        """boto3's client with root's credentials, to look at the store from outside. Made once: that takes longer than
        most calls."""
        if self._s3 is None:
            self._s3 = buckets.client("s3", self.endpoint, self.root, self.region)
        return self._s3


@dataclass
class MinioServer(StoreServer):
    def ready(self) -> bool:
        return minio.is_ready(self.endpoint)


@dataclass
class MariadbServer(Server):
    """Its user may make and use databases whose names begin with `test_` or `pipeline_`. It also speaks TLS, with a
    certificate that nobody but `ca_file` knows."""

    port: int = 0
    ca_file: str = ""
    user: str = "mts"
    password: str = field(default="", repr=False)

    def url(self, database: str) -> str:
        return f"mysql://{self.user}@127.0.0.1:{self.port}/{database}"

    def ready(self) -> bool:
        return mariadb.is_ready(self.port)


@dataclass
class CassandraServer(Server):
    """One node; tests share it, each with a keyspace of its own."""

    node: cassandra.Node = field(default_factory=lambda: cassandra.Node("127.0.0.1", 0, 0))

    def url(self, keyspace: str) -> str:
        return f"cql://{self.node.host}:{self.node.port}/{keyspace}"

    def ready(self) -> bool:
        return cassandra.is_ready(self.node)


MOST_TOMBSTONES = 1000


def start_cassandra(folder: Path, node: cassandra.Node | None = None) -> CassandraServer:
    """Without passwords, with little memory and little patience for remains, unless `node` says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    jars = find_cassandra()
    assert jars, "Cassandra is missing: these tests need it; `make test` gets it"
    if node is None:
        node = cassandra.Node(
            "127.0.0.1",
            free_port(),
            free_port(),
            heap=320 * cassandra.MIB,
            password=False,
            most_tombstones=MOST_TOMBSTONES,
        )
    launch = cassandra.launch(get_cassandra(), node, data=folder / "cassandra", log=folder / "cassandra.log")
    server = CassandraServer(launch, node=node)
    server.start()
    return server


def tarantool_program() -> Program:
    program = find_tarantool(load_settings()["tarantool.binary"])
    assert program, "Tarantool is missing: these tests need it; `make test` gets it"
    return program


def minio_program() -> Program:
    """MinIO or a failure: what these tests look at, only MinIO does."""
    program = find_minio()
    assert program, "MinIO is missing, on PATH and in the cache: these tests need it; `make test` builds it"
    return program


def start_tarantool(
    folder: Path,
    *,
    memory: int = 64 * tarantool.MIB,
    wal_mode: str = "write",
    extra_env: Mapping[str, str] | None = None,
    script: Path | None = None,
) -> TarantoolServer:
    """A private Tarantool with our Lua code; its data lives in `folder`. `script` runs instead of our `init.lua`."""
    folder.mkdir(parents=True, exist_ok=True)
    password = new_secret()
    write_private(folder / "password", password.encode())
    address = f"127.0.0.1:{free_port()}"
    launch = tarantool.launch(
        tarantool_program(),
        address=address,
        data=folder / "tarantool",
        log=folder / "tarantool.log",
        user="mts",
        password_file=folder / "password",
        memory=memory,
        wal_mode=wal_mode,
        extra_environ=extra_env,
    )
    if script is not None:
        launch = replace(launch, command=[launch.command[0], str(script)])
    server = TarantoolServer(launch, address=address, password=password)
    server.start()
    return server


def start_minio(
    folder: Path,
    webhook_url: str | None = None,
    webhook_token: str | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> MinioServer:
    """A private MinIO with its bucket, and with the bucket's notification when a webhook is given.

    `access_key` and `secret_key` are those of a user who may do what the host may; `root` may do everything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = MinioServer(Launch("", [], Path()), endpoint="", access_key=new_access_key(), secret_key=new_secret())
    port = free_port()
    server.endpoint = f"http://127.0.0.1:{port}"
    server.launch = minio.launch(
        minio_program(),
        port=port,
        data=folder / "minio",
        log=folder / "minio.log",
        root=server.root,
        webhook=Webhook(webhook_url, webhook_token or "") if webhook_url else None,
        extra_environ=extra_env,
    )
    server.start()
    s3 = server.s3()
    buckets.ensure_bucket(s3, server.bucket)
    if webhook_url:
        buckets.notify_webhook(s3, server.bucket, server.region)
    minio.ensure_user(server.endpoint, server.root, Credentials(server.access_key, server.secret_key), server.bucket)
    return server


def mariadb_program() -> Program:
    program = find_mariadb()
    assert program, "MariaDB is missing: these tests need it; `make test` gets it"
    return program


def start_mariadb(folder: Path) -> MariadbServer:
    """A private MariaDB without any database."""
    folder.mkdir(parents=True, exist_ok=True)
    program, data, log = mariadb_program(), folder / "mariadb", folder / "mariadb.log"
    mariadb.create(program, data, log)
    port, password = free_port(), new_secret()
    words = mariadb.first_words(new_secret(), "mts", password, [r"pipeline\_%", r"test\_%"])
    launch = mariadb.launch(program, port=port, data=data, log=log, words=words)
    own = certificate(folder, "mariadb")
    command = [*launch.command, f"--ssl-cert={own.file}", f"--ssl-key={own.key}"]
    server = MariadbServer(replace(launch, command=command), port=port, password=password, ca_file=str(own.file))
    server.start()
    return server
