"""The pipeline's API on two hosts with a real MariaDB behind them, and with SQLite as `mts up` has it."""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.live import Answer, Live, eventually, send, start_live
from tests.servers import MariadbServer, start_mariadb

BASE = "/api/v1/pipeline"
DAEMONS = 20


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """Of its own: a test stops it."""
    server = start_mariadb(tmp_path_factory.mktemp("pipeline-mariadb"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, database: MariadbServer) -> Iterator[Live]:
    environ = {
        "MTS_PIPELINE_DATABASE": database.url("pipeline_db"),
        "MTS_PIPELINE_PASSWORD": database.password,
        "MTS_SERVER_WORKERS": "1",
    }
    live = start_live(tmp_path_factory.mktemp("pipeline"), hosts=2, extra_env=environ)
    yield live
    live.stop()


@pytest.fixture
def filename() -> str:
    return f"f{uuid.uuid4().hex[:12]}"


def at(live: Live, host: int, method: str, path: str, body: Any = None) -> Answer:
    headers = {"authorization": f"Bearer {live.token}", "content-type": "application/json"}
    raw = None if body is None else json.dumps(body).encode()
    return send(method, live.hosts[host].url + BASE + path, raw, headers)


def written(live: Live, filename: str, shards: int) -> None:
    body = {"filename": filename, "shards": list(range(shards))}
    assert at(live, 0, "POST", "/files/register", body).json["created"]
    assert at(live, 1, "POST", "/stages/event-ingest/done", {"filename": filename}).json["updated_rows"] == shards


def connect(server: MariadbServer) -> Any:
    return pymysql.connect(
        host="127.0.0.1", port=server.port, user=server.user, password=server.password, database="pipeline_db"
    )


def test_the_table_is_made_when_a_host_starts(tmp_path: Path, stack: Live, database: MariadbServer) -> None:
    def columns() -> list[str]:
        with connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW COLUMNS FROM pipeline_tracking")
            return [row[0] for row in cursor.fetchall()]

    assert eventually(columns)[:6] == [
        "filename",
        "shard",
        "event_ingest_status",
        "shard_splitter_status",
        "shard_worker_status",
        "mysql_sender_status",
    ]


def test_the_specifications_own_sql_works_on_the_table(stack: Live, database: MariadbServer, filename: str) -> None:
    insert = (
        "INSERT INTO pipeline_tracking (filename, shard, event_ingest_status) VALUES (%s, %s, 'started')"
        " ON DUPLICATE KEY UPDATE filename = filename"
    )
    stack.api("GET", f"{BASE}/metrics/summary")
    with connect(database) as connection, connection.cursor() as cursor:
        for shard in (0, 1, 1):
            cursor.execute(insert, (filename, shard))
        cursor.execute(
            "UPDATE pipeline_tracking SET event_ingest_status = 'done', updated_at = NOW() WHERE filename = %s",
            (filename,),
        )
        connection.commit()
    shards = at(stack, 0, "GET", f"/files/{filename}").json["shards"]
    assert [(one["shard"], one["event_ingest_status"]) for one in shards] == [(0, "done"), (1, "done")]
    for transition in ("start", "done"):
        body = {"filename": filename, "shard": 1}
        assert at(stack, 1, "POST", f"/stages/shard-splitter/{transition}", body).status == 200


def test_twenty_daemons_claim_and_none_is_served_twice(stack: Live, filename: str) -> None:
    shards = 400
    written(stack, filename, shards)
    numbers = itertools.count()

    def daemon(number: int) -> list[tuple[int, str]]:
        mine: list[tuple[int, str]] = []
        while True:
            query = f"claim=true&limit=3&owner=d{number}"
            items = at(stack, next(numbers) % 2, "GET", f"/queues/shard-splitter?{query}").json["items"]
            items = [item for item in items if item["filename"] == filename]
            if not items:
                return mine
            for item in items:
                mine.append((item["shard"], item["owner"]))
                body = {"filename": filename, "shard": item["shard"], "owner": f"d{number}"}
                assert at(stack, number % 2, "POST", "/stages/shard-splitter/done", body).status == 200

    with ThreadPoolExecutor(DAEMONS) as threads:
        served = [one for mine in threads.map(daemon, range(DAEMONS)) for one in mine]
    counts = Counter(shard for shard, _ in served)
    assert [shard for shard, count in counts.items() if count > 1] == []
    left = at(stack, 0, "GET", f"/files/{filename}?details=true").json["shards"]
    # Who found the queue locked for a moment left; nothing that was not served is anything but new.
    assert {one["shard"] for one in left if one["shard_splitter_status"] == "done"} == set(counts)
    assert all(one["attempts"] == {"shard-splitter": 1} for one in left if one["shard"] in counts)
    assert len(counts) == shards


def test_twenty_daemons_start_one_task_and_one_gets_it(stack: Live, filename: str) -> None:
    written(stack, filename, 1)

    def start(number: int) -> int:
        body = {"filename": filename, "shard": 0, "owner": f"d{number}"}
        return at(stack, number % 2, "POST", "/stages/shard-splitter/start", body).status

    with ThreadPoolExecutor(DAEMONS) as threads:
        statuses = Counter(threads.map(start, range(DAEMONS)))
    assert statuses == {200: 1, 409: DAEMONS - 1}


def test_a_lease_that_ends_puts_the_task_back(stack: Live, filename: str) -> None:
    written(stack, filename, 1)
    body = {"filename": filename, "shard": 0, "owner": "dead", "lease": 1}
    assert at(stack, 0, "POST", "/stages/shard-splitter/start", body).status == 200
    other = {**body, "owner": "heir", "lease": 60}
    eventually(lambda: at(stack, 1, "POST", "/stages/shard-splitter/start", other).status == 200)
    late = at(stack, 0, "POST", "/stages/shard-splitter/done", {"filename": filename, "shard": 0, "owner": "dead"})
    assert (late.status, late.code) == (409, "lease_lost")


def test_a_database_that_was_away_is_found_again(stack: Live, database: MariadbServer, filename: str) -> None:
    written(stack, filename, 1)
    database.kill()
    for host in (0, 1):
        away = at(stack, host, "GET", f"/files/{filename}")
        assert (away.status, away.code) == (503, "unavailable")
        assert away.headers["retry-after"]
        assert database.password not in away.body.decode()
        assert stack.hosts[host].ready()  # messages go their way without it
    database.start()
    for host in (0, 1):
        eventually(lambda host=host: at(stack, host, "GET", f"/files/{filename}").status == 200)  # type: ignore[misc]
    for server in stack.hosts:
        assert database.password not in server.log.read_text("utf-8")


def test_without_a_database_of_ones_own_it_is_a_file_of_the_stack(live: Live, filename: str) -> None:
    answer = live.api("POST", f"{BASE}/files/register", {"filename": filename, "shards": [0]})
    assert answer.json == {"filename": filename, "shards": [0], "created": True}
    home = Path(live.hosts[0].launch.environ["MTS_HOME"])
    assert (home / "data" / "pipeline_db.sqlite").stat().st_mode & 0o077 == 0
