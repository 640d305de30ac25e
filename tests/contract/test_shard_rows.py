"""One contract for the databases that the pipeline's rows end in: SQLite and MariaDB keep it."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from minitoolstream.bootstrap import open_shard
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.ports import ShardRows
from tests.servers import MariadbServer

Stored = list[tuple[str, int, int, str, str]]
SELECT = "SELECT filename, shard, item, item_key, value FROM pipeline_result ORDER BY filename, shard, item"


class Kit:
    def __init__(self, open_rows: Callable[[], ShardRows], connect: Callable[[], Any]) -> None:
        self.rows, self.others = open_rows(), open_rows()
        self._connect = connect

    def stored(self) -> Stored:
        connection = self._connect()
        try:
            cursor = connection.cursor()
            cursor.execute(SELECT)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()


@pytest.fixture(params=["sqlite", "mariadb"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    if request.param == "sqlite":
        file = tmp_path / "shard.db"
        settings = load_settings({"MTS_HOME": str(tmp_path)}, cwd=tmp_path)
        kit = Kit(lambda: open_shard(settings, f"sqlite:{file}"), lambda: sqlite3.connect(file))
    else:
        server: MariadbServer = request.getfixturevalue("mariadb_server")
        name = f"test_{uuid.uuid4().hex}"
        environ = {"MTS_HOME": str(tmp_path), "MTS_PIPELINE_SHARD_PASSWORD": server.password}
        settings = load_settings(environ, cwd=tmp_path)
        login: Any = {"host": "127.0.0.1", "port": server.port, "user": server.user, "password": server.password}
        kit = Kit(lambda: open_shard(settings, server.url(name)), lambda: pymysql.connect(**login, database=name))
    yield kit
    kit.rows.close()
    kit.others.close()


def rows(*keys: str) -> list[tuple[str, str]]:
    return [(key, json.dumps({"key": key})) for key in keys]


def test_rows_take_the_place_of_those_that_were_there(kit: Kit) -> None:
    kit.rows.replace("f", 0, rows("a", "b", "c"))
    kit.rows.replace("f", 1, rows("x"))
    kit.rows.replace("f", 0, rows("a", "d"))
    shown = [row[:4] for row in kit.stored()]
    assert shown == [("f", 0, 0, "a"), ("f", 0, 1, "d"), ("f", 1, 0, "x")]
    kit.rows.replace("f", 0, [])
    assert [row[:4] for row in kit.stored()] == [("f", 1, 0, "x")]


def test_sent_again_rows_are_the_same(kit: Kit) -> None:
    kit.rows.replace("f", 0, rows("a", "b"))
    before = kit.stored()
    kit.rows.replace("f", 0, rows("a", "b"))
    assert kit.stored() == before


def test_keys_are_kept_as_they_are(kit: Kit) -> None:
    keys = ("a", "A", "a ", "", "ключ ✓", "x" * 5000, "a\nb", "%s", "'; --")
    kit.rows.replace("f", 0, rows(*keys))
    assert [row[3] for row in kit.stored()] == list(keys)
    assert [json.loads(row[4])["key"] for row in kit.stored()] == list(keys)


def test_very_many_rows_are_sent_whole(kit: Kit) -> None:
    kit.rows.replace("f", 0, rows(*(str(number) for number in range(1234))))
    assert [(row[2], row[3]) for row in kit.stored()] == [(number, str(number)) for number in range(1234)]


def test_a_row_that_is_refused_changes_nothing(kit: Kit) -> None:
    kit.rows.replace("f", 0, rows("a"))
    with pytest.raises(MtsError):
        kit.rows.replace("f", 0, [*rows("b"), ("c", "no JSON")])
    assert [row[3] for row in kit.stored()] == ["a"]


@pytest.mark.parametrize("kit", ["mariadb"], indirect=True)
def test_who_is_overtaken_by_one_that_lost_the_task_sends_its_rows_all_the_same(kit: Kit) -> None:
    class Overtaken(list[tuple[str, str]]):
        times = 0

        def __iter__(self) -> Iterator[tuple[str, str]]:
            self.times += 1
            if self.times == 1:  # what was there is deleted, nothing is written yet
                kit.others.replace("f", 0, list(self[:]))
            return super().__iter__()

    kit.others.replace("g", 0, rows("a"))  # there is a table
    kit.rows.replace("f", 0, Overtaken(rows("a", "b")))
    assert [row[:4] for row in kit.stored()] == [("f", 0, 0, "a"), ("f", 0, 1, "b"), ("g", 0, 0, "a")]
