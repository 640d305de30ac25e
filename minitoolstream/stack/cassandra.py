"""Cassandra as a child process: its files, its command, and when it is ready."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from minitoolstream.domain.errors import MtsError, no_driver
from minitoolstream.stack.get_cassandra import FILES
from minitoolstream.stack.ports import listens
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program

MIB = 2**20
USER = "cassandra"
_FIRST_USER_WITHIN = 60.0
_TIMER_SLACK = 0.0005
"""Threads of its that have run out of work look for more every 10 us for a while. Sleeping half a millisecond longer,
they leave CPU to whatever shares the machine; a statement alone waits a little longer."""


@dataclass(frozen=True, slots=True)
class Node:
    """One server of a cluster. Nodes of a cluster share the storage port and differ in their addresses."""

    host: str
    port: int
    storage_port: int
    datacenter: str = "datacenter1"
    seeds: tuple[str, ...] = ()
    heap: int = 512 * MIB
    password: bool = True
    """Whether clients must log in; the first user is `cassandra`, with this as its password."""
    most_tombstones: int = 100_000
    """A read that meets more remains of deleted rows is refused."""


def launch(program: Program, node: Node, *, data: Path, log: Path) -> Launch:
    _write_files(node, data)
    jars = program.environ["CASSANDRA_JARS"]
    defines = {
        "cassandra.config": f"file://{data}/cassandra.yaml",
        "cassandra-rackdc.properties": f"file://{data}/cassandra-rackdc.properties",
        "cassandra.storagedir": str(data),
        "cassandra.logdir": str(log.parent),
        "logback.configurationFile": f"{data}/logback.xml",
        # It is alone, or its peers are on this machine: there is nothing to wait for.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "2000" if node.seeds else "100",
        "cassandra.superuser_setup_delay_ms": "0",
        "java.io.tmpdir": str(data),
        "jna.tmpdir": str(data),
        "io.netty.native.workdir": str(data),
    }
    return Launch(
        name="Cassandra",
        command=[
            str(program.path),
            f"@{FILES / 'java17.args'}",
            f"-Xms{node.heap // MIB}m",
            f"-Xmx{node.heap // MIB}m",
            "-XX:+ExitOnOutOfMemoryError",
            *(f"-D{name}={value}" for name, value in defines.items()),
            "-cp",
            f"{data}:{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ],
        log=log,
        environ={name: value for name, value in program.environ.items() if name == "JAVA_HOME"},
        timer_slack=_TIMER_SLACK,
    )


def is_ready(node: Node) -> bool:
    """It listens when it can serve."""
    return listens(node.host, node.port)


def check_driver() -> None:
    """Looked for before anything is fetched or started."""
    if find_spec("cassandra") is None:
        raise no_driver()


def set_password(node: Node, password: str) -> None:
    """Done again, it changes nothing. A new server lets its first user in with a password that everybody knows."""
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster, NoHostAvailable

    deadline = time.monotonic() + _FIRST_USER_WITHIN
    while True:
        for known in (password, USER):
            cluster = Cluster([node.host], port=node.port, auth_provider=PlainTextAuthProvider(USER, known))
            try:
                session = cluster.connect()
                if known == password:
                    return
                # Who has just come in is remembered with the old one for two seconds, and others are refused so long.
                session.execute(f"ALTER ROLE {USER} WITH PASSWORD = '{password}'")  # hex
            except NoHostAvailable:
                if time.monotonic() > deadline:
                    raise MtsError("start_failed", "Cassandra lets nobody in", {"log": ""}) from None
            finally:
                cluster.shutdown()
        time.sleep(0.5)


def _write_files(node: Node, data: Path) -> None:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    # YAML takes JSON, too.
    (data / "cassandra.yaml").write_text(json.dumps(_settings(node, data), indent=1))
    rack = f"dc={node.datacenter}\nrack=rack1\n"
    (data / "cassandra-rackdc.properties").write_text(rack)
    (data / "logback.xml").write_text(
        "<configuration><appender name='OUT' class='ch.qos.logback.core.ConsoleAppender'><encoder>"
        "<pattern>%date %-5level %logger{0} %msg%n</pattern></encoder></appender>"
        "<root level='WARN'><appender-ref ref='OUT'/></root></configuration>\n"
    )


def _settings(node: Node, data: Path) -> dict[str, object]:
    kinds = {"commitlog_directory": "commitlog", "saved_caches_directory": "caches", "hints_directory": "hints"}
    seeds = ",".join(f"{seed}:{node.storage_port}" for seed in node.seeds or (node.host,))
    return {
        "cluster_name": "minitoolstream",
        "num_tokens": 16,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "seed_provider": [_named("org.apache.cassandra.locator.SimpleSeedProvider", seeds=seeds)],
        "listen_address": node.host,
        "rpc_address": node.host,
        "storage_port": node.storage_port,
        "native_transport_port": node.port,
        "data_file_directories": [str(data / "data")],
        **{name: str(data / folder) for name, folder in kinds.items()},
        "cdc_raw_directory": str(data / "cdc"),
        # One node alone: with the usual `periodic`, a kill loses what was acknowledged in the last moment.
        "commitlog_sync": "batch",
        "commitlog_segment_size": "16MiB",
        "memtable_heap_space": f"{node.heap // MIB // 8}MiB",
        "memtable_offheap_space": "64MiB",
        "file_cache_size": "32MiB",
        "concurrent_compactors": 1,
        "concurrent_reads": 16,
        # Writers wait for the log, which is brought to the disk for all that wait.
        "concurrent_writes": 128,
        "concurrent_counter_writes": 8,
        "auto_snapshot": False,
        "hinted_handoff_enabled": True,
        "max_hints_delivery_threads": 2,
        "materialized_views_enabled": False,
        "tombstone_warn_threshold": min(1000, node.most_tombstones),
        "tombstone_failure_threshold": node.most_tombstones,
        "batch_size_warn_threshold": "64KiB",
        "batch_size_fail_threshold": "256KiB",
        "cas_contention_timeout": "5000ms",
        "read_request_timeout": "5000ms",
        "write_request_timeout": "5000ms",
        "counter_write_request_timeout": "5000ms",
        "request_timeout": "10000ms",
        "authenticator": "PasswordAuthenticator" if node.password else "AllowAllAuthenticator",
        "authorizer": "AllowAllAuthorizer",
        "role_manager": "CassandraRoleManager",
        "auth_cache_warming_enabled": False,
    }


def _named(name: str, **parameters: str) -> dict[str, object]:
    values: Sequence[dict[str, str]] = [parameters]
    return {"class_name": name, "parameters": values}
