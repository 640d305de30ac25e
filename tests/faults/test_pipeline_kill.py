"""The pipeline on real servers, killed between every two steps: the next run ends with the same rows in MySQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from minitoolstream.client import Client, Item
from minitoolstream.config import load_settings
from tests.faults.pipeline_child import run_pipeline
from tests.live import Live, start_live
from tests.servers import MariadbServer

ROOT = Path(__file__).parents[2]
SUBJECT = "orders"


@dataclass
class World:
    live: Live
    database: MariadbServer

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.live.environ,
            "MTS_URL": self.live.url,
            "MTS_HOME": str(self.live.folder / "daemons"),
            "MTS_PIPELINE_SHARDS": ",".join(f"{shard}={self.database.url(f'test_shard_{shard}')}" for shard in (0, 1)),
            "MTS_PIPELINE_SHARD_PASSWORD": self.database.password,
        }

    def run(self, filename: str) -> None:
        """In this process, to its end."""
        run_pipeline(load_settings(self.environ, cwd=self.live.folder), SUBJECT, filename)

    @contextmanager
    def killed_runs(self) -> Iterator[Callable[[str, int], tuple[int, int]]]:
        """A run in another process, killed behind so many calls: how it ended, and how many calls it made."""
        command = [sys.executable, "-m", "tests.faults.pipeline_child", SUBJECT]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, env=self.environ, stdin=pipe, stdout=pipe, text=True) as runs:
            assert runs.stdin
            assert runs.stdout
            stdin, stdout = runs.stdin, runs.stdout

            def run(filename: str, kill_after: int) -> tuple[int, int]:
                print(filename, kill_after, file=stdin, flush=True)
                code, calls = stdout.readline().split()
                return int(code), int(calls)

            yield run

    def rows(self, filename: str) -> list[tuple[int, int, str, Any]]:
        found: list[tuple[int, int, str, Any]] = []
        for shard in (0, 1):
            place = {"host": "127.0.0.1", "port": self.database.port, "database": f"test_shard_{shard}"}
            login: Any = {**place, "user": self.database.user, "password": self.database.password}
            with pymysql.connect(**login) as connection, connection.cursor() as cursor:
                cursor.execute(
                    "SELECT shard, item, item_key, value FROM pipeline_result WHERE filename = %s ORDER BY shard, item",
                    (filename,),
                )
                found += [(*row[:3], json.loads(row[3])) for row in cursor.fetchall()]
        return found

    def statuses(self, filename: str) -> set[str]:
        shards = self.live.api("GET", f"/api/v1/pipeline/files/{filename}").json["shards"]
        return {value for shard in shards for name, value in shard.items() if name.endswith("_status")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, mariadb_server: MariadbServer) -> Iterator[World]:
    environ = {
        "MTS_PIPELINE_DATABASE": mariadb_server.url("pipeline_kill"),
        "MTS_PIPELINE_PASSWORD": mariadb_server.password,
        "MTS_SERVER_WORKERS": "1",
    }
    live = start_live(tmp_path_factory.mktemp("pipeline-kill"), extra_env=environ)
    with Client(live.url, live.token) as client:
        items = [Item(f"{number}", headers={"key": f"customer {number % 11} ✓"}) for number in range(200)]
        assert all(result.ok for result in client.publish_batch(SUBJECT, items))
        client.publish(SUBJECT, b"\xff\x00 not text")
    yield World(live, mariadb_server)
    live.stop()


def test_killed_between_any_two_steps_the_next_run_ends_with_the_same_rows(world: World) -> None:
    with world.killed_runs() as run:
        code, calls = run("whole", 0)
        expected = world.rows("whole")
        assert code == 0
        assert calls > 20
        assert sum(value["messages"] for *_, value in expected) == 201
        for at in range(1, calls):
            name = f"killed-{at}"
            assert run(name, at)[0] == -signal.SIGKILL
            world.run(name)
            assert world.rows(name) == expected, f"killed behind call {at}"
            assert world.statuses(name) == {"done"}


def test_no_secret_is_told_by_a_run_that_fails(world: World) -> None:
    environ = world.environ | {"MTS_PIPELINE_SHARD_PASSWORD": "wrong-secret-of-the-test"}
    command = [sys.executable, "-m", "minitoolstream.cli.main", "pipeline", "run", "--subject", SUBJECT]
    done = subprocess.run(
        [*command, "--filename", "wrong-login"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    status = world.live.api("GET", "/api/v1/pipeline/files/wrong-login?details=true").body.decode()
    told = done.stdout + done.stderr + status
    assert "MTS_PIPELINE_SHARD_PASSWORD" in told
    assert "wrong-secret" not in told
