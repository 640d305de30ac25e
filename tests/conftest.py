"""Fixtures all tests share. A server lives as long as its test worker; kill tests start their own."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings

from tests.live import Live, start_live
from tests.localstack import LocalStack, start_localstack
from tests.servers import (
    CassandraServer,
    MariadbServer,
    MinioServer,
    TarantoolServer,
    start_cassandra,
    start_mariadb,
    start_minio,
    start_tarantool,
)

# What a shell runs in the background ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a failure is the change's. `--hypothesis-profile=explore` looks further.
hypothesis_settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
hypothesis_settings.register_profile("explore", deadline=None, max_examples=500)
hypothesis_settings.load_profile("steady")


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_group_modules(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module run in one worker, or each worker would set it up."""
    for item in items:
        info: Any = getattr(item, "_fixtureinfo", None)
        shared = info and any(made[-1].scope == "module" for made in info.name2fixturedefs.values())
        if shared and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """xdist 3.8 writes the group of a test where pytest 9.2 no longer looks: `xdist_group` would mean nothing, and
    each worker would start the servers that a group shares."""
    for item in items:
        grouped = getattr(item, "_nodeid", None)
        if grouped is not None and item.nodeid != grouped:
            from _pytest.nodeid import coerce_node_id

            item._id = coerce_node_id(grouped)


@pytest.fixture(scope="session")
def tarantool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TarantoolServer]:
    server = start_tarantool(tmp_path_factory.mktemp("tarantool"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """MinIO without events; tests that need the webhook start their own, since it is a start-time setting."""
    server = start_minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def localstack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Tests that use it are of the xdist group `localstack`, so that one worker starts one."""
    server = start_localstack(tmp_path_factory.mktemp("localstack"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """Tests share it, each in a database of its own."""
    server = start_mariadb(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cassandra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """It is dear: tests that use it are of the xdist group `cassandra`, so that one worker starts one."""
    server = start_cassandra(tmp_path_factory.mktemp("cassandra"))
    yield server
    server.kill()  # to stop would take seconds, and nothing of it is kept


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A whole stack that tests share: use subjects of your own, stop nothing."""
    stack = start_live(tmp_path_factory.mktemp("live"))
    yield stack
    stack.stop()


@pytest.fixture(scope="module")
def own_pipeline(live: Live) -> Iterator[Live]:
    """The shared stack by a host of the module's own, whose tracked pipeline nobody else uses."""
    host = live.add_host()
    live.hosts.remove(host)
    yield replace(live, hosts=[host])
    host.stop()


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"s-{uuid.uuid4().hex[:12]}"
