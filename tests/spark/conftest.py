"""One Spark session for all tests here. Its pyspark lies in a virtualenv of our cache, behind our own packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.stack.get_java import get_java
from minitoolstream.stack.get_spark import find_spark, packages_of
from tests.live import Live, start_live
from tests.servers import UNMEASURED, MinioServer

ROOT = Path(__file__).resolve().parents[2]
_spark = find_spark()
assert _spark, "PySpark is missing: these tests need it; `make test` gets it"
PACKAGES = packages_of(_spark)
if str(PACKAGES) not in sys.path:
    sys.path.append(str(PACKAGES))

SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
}
CONNECTION = (
    "tarantool.address",
    "tarantool.user",
    "tarantool.password",
    "minio.endpoint",
    "minio.bucket",
    "minio.access_key",
    "minio.secret_key",
    "server.token",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that need the session run in one test worker, or each would start its own."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def spark_environ() -> dict[str, str]:
    """What a process needs to run Spark with this checkout and this Python."""
    return {
        **get_java().environ,
        **(_spark.environ if _spark else {}),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(PACKAGES)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **UNMEASURED,
    }


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, minio_server: MinioServer) -> Iterator[Live]:
    """Tarantool, MinIO and a host of these tests' own; copies that subjects ask for go to another MinIO."""
    environ = {
        "MTS_JOURNAL_INTERVAL": "1s",
        "MTS_CATALOG_PEERS": f"eu={minio_server.endpoint}/{minio_server.bucket}?zone=eu",
        "MTS_CATALOG_PEER_KEYS": f"eu={minio_server.access_key}:{minio_server.secret_key}",
        "MTS_CATALOG_INTERVAL": "1d",
    }
    live = start_live(tmp_path_factory.mktemp("spark-live"), extra_env=environ)
    yield live
    live.stop()


@pytest.fixture(scope="session")
def spark(stack: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on two local cores, with the stack's addresses and secrets in its conf."""
    measured = {name: os.environ.get(name, "") for name in UNMEASURED}
    os.environ.update(spark_environ())
    from pyspark.sql import SparkSession

    from spark_emr.session import conf_name
    from spark_emr.source import register

    builder = SparkSession.builder.master("local[2]").appName("tests")
    folder = tmp_path_factory.mktemp("spark")
    conf = {**SPARK_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    os.environ.update(measured)
    session.sparkContext.setLogLevel("ERROR")
    # Only now: what the builder is given stands in the process list.
    for key in CONNECTION:
        session.conf.set(conf_name(key), str(stack.settings[key]))
    session.conf.set(conf_name("server.urls"), stack.url)
    register(session)
    yield session
    session.stop()
