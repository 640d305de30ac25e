"""`make spark-cluster`: a real standalone master with two workers on loopback, and every step on it, from the archive.

python -m scripts.spark_cluster [4] [3]        PySpark 4.1 and 3.5, both unless told
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minitoolstream.client import Client, Item
from minitoolstream.config import load_settings
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_java import get_java
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.get_spark import VERSIONS, get_spark
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from scripts import spark_archive, tools
from tests.live import Live, send, start_live
from tests.servers import Server

_SUBJECT, _MESSAGES = "orders", 5000
_SUBMIT_TIMEOUT = 300
_CONF = """spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 1g
spark.executor.memory 512m
spark.executor.cores 1
spark.cores.max 2
spark.sql.shuffle.partitions 2
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


class ClusterPart(Server):
    """A master or a worker, ready when its page answers."""

    def __init__(self, launch: Launch, page: str) -> None:
        super().__init__(launch)
        self._page = page

    def ready(self) -> bool:
        try:
            return send("GET", self._page, timeout=2).status == 200
        except OSError:
            return False


@contextmanager
def cluster(folder: Path, environ: dict[str, str], workers: int = 2) -> Iterator[str]:
    """The address of a master with its workers."""
    folder.mkdir(parents=True, exist_ok=True)
    spark_class = str(Path(environ["SPARK_HOME"]) / "bin" / "spark-class")
    parts: list[ClusterPart] = []

    def add(name: str, *arguments: str) -> None:
        page = free_port()
        command = [spark_class, *arguments, "--host", "127.0.0.1", "--webui-port", str(page)]
        launch = Launch(name, command, folder / f"{name}.log", folder=folder, environ=environ)
        part = ClusterPart(launch, f"http://127.0.0.1:{page}/")
        parts.append(part)
        part.start()

    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    try:
        add("master", "org.apache.spark.deploy.master.Master", "--port", str(port))
        for number in range(workers):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            add(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", address, *options)
        yield address
    finally:
        for part in reversed(parts):
            part.stop()


class Submitter:
    """Runs steps as a user would: from a folder with nothing but the archive and the file to submit."""

    def __init__(self, spark: Program, environ: dict[str, str], master: str, folder: Path) -> None:
        self._environ = environ
        self._folder = folder
        submit = str(Path(spark.environ["SPARK_HOME"]) / "bin" / "spark-submit")
        conf = folder / "spark.conf"
        conf.write_text(_CONF)
        archive = f"{folder / 'minitoolstream-spark.tar.gz'}#mts"
        self._command = [
            submit,
            "--master",
            master,
            "--properties-file",
            str(conf),
            "--archives",
            archive,
            "run_step.py",
        ]

    def __call__(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        started = time.monotonic()
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_SUBMIT_TIMEOUT,
            check=False,
        )
        lines = done.stdout.splitlines()
        if done.returncode != code or not lines:
            raise SystemExit(
                f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-6000:]}"
            )
        told: dict[str, Any] = json.loads(lines[-1])
        print(f"  ✓ {arguments[0]}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)
        return told


def publish(live: Live) -> None:
    with Client(live.url, live.token) as client:
        items = [Item(b"message %d" % n, headers={"kind": str(n % 3)}) for n in range(_MESSAGES)]
        for result in client.publish_batch(_SUBJECT, items):
            result.unwrap()
        for n in range(20):
            client.publish(_SUBJECT, b"single %d" % n)


def run_steps(submit: Submitter, output: Path) -> None:
    """Every step once, with what it must say."""
    total = _MESSAGES + 20
    subject = ("--subject", _SUBJECT)
    told = submit("replay_to_parquet", *subject, "--output", str(output), "--partitions", "4")
    assert told["summary"]["rows"] == total, told
    again = f"{_SUBJECT}-{output.name}"
    told = submit("replay_to_subject", *subject, "--to-subject", again)
    assert told["summary"]["published"]["messages"] == total, told
    assert submit("verify", "--subject", again)["summary"]["by_crc32"] == total
    assert submit("stats", *subject, "--header", "kind")["summary"]["messages"] == total
    submit("verify", "--subject", "nobody-made-me", code=2)
    submit("verify", *subject, "--from-sequence", str(10**15), code=3)


def run_version(version: str, live: Live, java: Program, spark: Program, folder: Path) -> None:
    print(f"PySpark {version}: {VERSIONS[version]}", flush=True)
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environ = {
        **clean,
        **java.environ,
        **spark.environ,
        **live.environ,
        "MTS_URL": live.url,
        "MTS_HOME": str(folder / "home"),
        "PYSPARK_PYTHON": str(spark.path),
        "PYSPARK_DRIVER_PYTHON": str(spark.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with cluster(folder / "cluster", environ) as master:
        run_steps(Submitter(spark, environ, master, folder), folder / f"out{version}")


def main(versions: Sequence[str]) -> int:
    console = Console()
    tools.get(console, "Tarantool", lambda update: get_tarantool(load_settings()["tarantool.binary"], update=update))
    tools.get(console, "MinIO", get_minio)
    java = tools.get(console, "Java", get_java)
    sparks = {v: tools.get(console, f"Spark {v}", lambda update, v=v: get_spark(v, update=update)) for v in versions}
    with tempfile.TemporaryDirectory(prefix="mts-cluster-") as temporary:
        folder = Path(temporary)
        print("building the archive", flush=True)
        spark_archive.build(folder)
        live = start_live(folder / "live")
        try:
            publish(live)
            for version, spark in sparks.items():
                own = folder / version
                own.mkdir()
                for made in ("minitoolstream-spark.tar.gz", "run_step.py"):
                    (own / made).symlink_to(folder / made)
                run_version(version, live, java, spark, own)
        finally:
            live.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or tuple(VERSIONS)))
