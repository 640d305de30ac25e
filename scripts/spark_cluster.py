"""`make spark-cluster`: a real standalone master with two workers on loopback, and every step on it, from the archive.

python -m scripts.spark_cluster [4] [3]        PySpark 4.1 and 3.5, both unless told
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from minitoolstream.client import Client, Item
from minitoolstream.config import load_settings
from minitoolstream.pipeline.places import place_of
from minitoolstream.stack.console import Console
from minitoolstream.stack.get_java import get_java
from minitoolstream.stack.get_mariadb import get_mariadb
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.get_spark import VERSIONS, get_spark
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.ports import free_port
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program, cache_folder
from scripts import spark_archive, tools
from spark_emr.sinks import parquet
from tests.live import Live, send, start_live
from tests.servers import MariadbServer, Server, start_mariadb

_SUBJECT, _MESSAGES = "orders", 5000
_SHARDS = ("test_shard_0", "test_shard_1")
_SUBMIT_TIMEOUT = 300
_KILL_WITHIN = 120
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


@dataclass(frozen=True)
class Cluster:
    address: str
    workers: list[ClusterPart]

    def kill_executor(self) -> None:
        """`kill -9` of an executor that has a Python task, as soon as there is one."""
        deadline = time.monotonic() + _KILL_WITHIN
        while time.monotonic() < deadline:
            for executor in children(self.workers[0].pid):
                if children(executor):
                    os.kill(executor, signal.SIGKILL)
                    return
            time.sleep(0.02)
        raise SystemExit("no executor ran a task")


def children(pid: int) -> list[int]:
    """Of all threads: any of a JVM's may have started one."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, listed.read_text().split())
    return found


@contextmanager
def cluster(folder: Path, environ: dict[str, str], workers: int = 2) -> Iterator[Cluster]:
    """A master with its workers."""
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
        yield Cluster(address, parts[1:])
    finally:
        for part in reversed(parts):
            part.stop()


class Submitter:
    """Runs steps as a user would: from a folder with nothing but the archive and the file to submit."""

    def __init__(self, spark: Program, environ: dict[str, str], master: str, folder: Path) -> None:
        self._environ = environ
        self._folder = folder
        self._master = master
        self._submit = str(Path(spark.environ["SPARK_HOME"]) / "bin" / "spark-submit")
        conf = folder / "spark.conf"
        conf.write_text(_CONF)
        self._conf = conf
        self._archive = f"{folder / 'minitoolstream-spark.tar.gz'}#mts"

    def __call__(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        started = time.monotonic()
        told = self._run(self._conf, ["--archives", self._archive, "run_step.py", *arguments], code)
        print(f"  ✓ {arguments[0]}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)
        return told

    def other(self, conf: Path, program: Path, *arguments: str) -> dict[str, Any]:
        """A program of one's own."""
        return self._run(conf, [str(program), *arguments], 0)

    def _run(self, conf: Path, arguments: Sequence[str], code: int) -> dict[str, Any]:
        done = subprocess.run(
            [self._submit, "--master", self._master, "--properties-file", str(conf), *arguments],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_SUBMIT_TIMEOUT,
            check=False,
        )
        lines = done.stdout.splitlines()
        if done.returncode != code or not lines:
            said = f"{done.stdout}\n{done.stderr[-6000:]}"
            raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{said}")
        told: dict[str, Any] = json.loads(lines[-1])
        return told


def publish(live: Live) -> None:
    with Client(live.url, live.token) as client:
        items = [Item(b"message %d" % n, headers={"kind": str(n % 3)}) for n in range(_MESSAGES)]
        for result in client.publish_batch(_SUBJECT, items):
            result.unwrap()
        for n in range(20):
            for subject in (_SUBJECT, *(f"small-{version}" for version in VERSIONS)):
                client.publish(subject, b"single %d" % n)


def run_steps(submit: Submitter, version: str, output: Path) -> None:
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
    hashed = submit("content_ids", "--subject", f"small-{version}")["summary"]
    assert (hashed["hashed"], hashed["held"]) == (20, 0), hashed  # it asks for no copies
    assert submit("compact", "--subject", f"small-{version}")["summary"]["rows"] == 20
    submit("verify", "--subject", "nobody-made-me", code=2)
    submit("verify", *subject, "--from-sequence", str(10**15), code=3)


def run_daemons(submit: Submitter, version: str, database: MariadbServer) -> None:
    """The pipeline from a subject into MariaDB, each of its daemons a step, with as many of them as there are cores."""
    ingest = ("event_ingest", "--subject", _SUBJECT, "--key", "header:kind", "--filename", f"cluster-{version}")
    told = submit(*ingest)
    assert told["summary"]["messages"] == _MESSAGES + 20, told
    for step in ("shard_splitter", "shard_worker", "mysql_sender"):
        summary = submit(step)["summary"]
        assert (summary["done"], summary["daemons"]) == (2, 2), summary
    submit("mysql_sender", code=3)
    counted = 0
    for shard in _SHARDS:
        login: Any = {"port": database.port, "user": database.user, "password": database.password}
        with pymysql.connect(host="127.0.0.1", database=shard, **login) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT value FROM pipeline_result WHERE filename = %s", (f"cluster-{version}",))
            counted += sum(json.loads(row[0])["messages"] for row in cursor.fetchall())
    assert counted == _MESSAGES + 20, counted
    print("  ✓ every message is in MariaDB", flush=True)


def survive_a_kill(running: Cluster, submit: Submitter, output: Path) -> None:
    """An executor dies in the middle: its tasks run elsewhere. The manifest names each message once, and a subject gets
    each once."""
    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(running.kill_executor)
        told = submit("replay_to_parquet", "--subject", _SUBJECT, "--output", str(output), "--partitions", "40")
        killed.result()
        assert told["summary"]["rows"] == _MESSAGES + 20, told
        again = f"{_SUBJECT}-{output.name}"
        killed = thread.submit(running.kill_executor)
        submit("replay_to_subject", "--subject", _SUBJECT, "--to-subject", again)
        killed.result()
    assert submit("verify", "--subject", again)["summary"]["messages"] == _MESSAGES + 20
    print("  ✓ executors were killed meanwhile", flush=True)


S3A_CONF = """spark.hadoop.fs.s3a.path.style.access true
spark.hadoop.fs.s3a.connection.ssl.enabled false
spark.hadoop.fs.s3a.endpoint.region us-east-1
spark.hadoop.fs.s3a.committer.name magic
spark.sql.sources.commitProtocolClass org.apache.spark.internal.io.cloud.PathOutputCommitProtocol
spark.sql.parquet.output.committer.class org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter
"""


def get_jars() -> Path | None:
    """Those of spark_emr/s3a/pom.xml, from Maven Central, once; None where there is no Maven."""
    pom = tools.ROOT / "spark_emr" / "s3a" / "pom.xml"
    folder = cache_folder() / "jars" / f"s3a-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        if not shutil.which("mvn"):
            return None
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        subprocess.run(["mvn", "-B", "-q", "-f", str(pom), *copy], check=True)
        (folder / "complete").touch()
    return folder


def check_s3a(live: Live, submit: Submitter, folder: Path, jars: Path) -> None:
    """Spark's own reader and writer, with the jars of the docs, on what a step wrote into the bucket."""
    bucket = live.settings["minio.bucket"]
    submit("replay_to_parquet", "--subject", _SUBJECT, "--output", f"s3://{bucket}/replays/s3a")
    conf = folder / "s3a.conf"
    classes = f"{jars}/*"
    paths = f"spark.driver.extraClassPath {classes}\nspark.executor.extraClassPath {classes}\n"
    conf.write_text(_CONF + paths + f"spark.hadoop.fs.s3a.endpoint {live.settings['minio.endpoint']}\n" + S3A_CONF)
    # Hadoop's listings leave out names that begin with `_`, so the manifest is not read through them.
    files = parquet.read_manifest(place_of(f"s3://{bucket}/replays/s3a", live.settings))["files"]
    urls = [f"s3a://{bucket}/replays/s3a/{file['name']}" for file in files]
    told = submit.other(conf, tools.ROOT / "scripts" / "s3a_job.py", f"s3a://{bucket}/own", *urls)
    assert told == {"rows": _MESSAGES + 20, "written": _MESSAGES + 20}, told
    success = live.minio.s3().get_object(Bucket=bucket, Key="own/_SUCCESS")["Body"].read()
    assert json.loads(success)["committer"] == "magic", success
    print("  ✓ S3A: read by the manifest, written with the magic committer", flush=True)


def run_version(
    version: str, live: Live, database: MariadbServer, programs: tuple[Program, Program], folder: Path
) -> None:
    java, spark = programs
    print(f"PySpark {version}: {VERSIONS[version]}", flush=True)
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environ = {
        **clean,
        **java.environ,
        **spark.environ,
        **live.environ,
        "MTS_URL": live.url,
        "AWS_ACCESS_KEY_ID": live.minio.root.access_key,
        "AWS_SECRET_ACCESS_KEY": live.minio.root.secret_key,
        "MTS_HOME": str(folder / "home"),
        "PYSPARK_PYTHON": str(spark.path),
        "PYSPARK_DRIVER_PYTHON": str(spark.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "MTS_PIPELINE_SHARDS": ",".join(f"{number}={database.url(name)}" for number, name in enumerate(_SHARDS)),
        "MTS_PIPELINE_SHARD_PASSWORD": database.password,
    }
    with cluster(folder / "cluster", environ) as running:
        submit = Submitter(spark, environ, running.address, folder)
        run_steps(submit, version, folder / f"out{version}")
        run_daemons(submit, version, database)
        survive_a_kill(running, submit, folder / f"killed{version}")
        if version == "4" and (jars := get_jars()) is not None:
            check_s3a(live, submit, folder, jars)


def main(versions: Sequence[str]) -> int:
    console = Console()
    tools.get(console, "Tarantool", lambda update: get_tarantool(load_settings()["tarantool.binary"], update=update))
    tools.get(console, "MinIO", get_minio)
    tools.get(console, "MariaDB", get_mariadb)
    java = tools.get(console, "Java", get_java)
    sparks = {v: tools.get(console, f"Spark {v}", lambda update, v=v: get_spark(v, update=update)) for v in versions}
    with tempfile.TemporaryDirectory(prefix="mts-cluster-") as temporary:
        folder = Path(temporary)
        print("building the archive", flush=True)
        spark_archive.build(folder)
        live = start_live(folder / "live")
        database = start_mariadb(folder / "mariadb")
        try:
            publish(live)
            for version, spark in sparks.items():
                own = folder / version
                own.mkdir()
                for made in ("minitoolstream-spark.tar.gz", "run_step.py"):
                    (own / made).symlink_to(folder / made)
                run_version(version, live, database, (java, spark), own)
        finally:
            database.stop()
            live.stop()
    if "4" in versions and get_jars() is None:
        print("S3A was NOT tried: there is no mvn to get its jars with. The rest passed.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with us
    sys.exit(main(sys.argv[1:] or tuple(VERSIONS)))
