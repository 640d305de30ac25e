"""Upserts into MySQL or MariaDB: what is said to a database, and what a real MariaDB makes of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from minitoolstream.domain.errors import MtsError
from spark_emr.sinks.sql import upsert, upsert_statement, write_rows
from tests.servers import MariadbServer


class Recording:
    """A DB-API connection that writes down what it is told."""

    def __init__(self, fails: bool = False) -> None:
        self.told: list[Any] = []
        self._fails = fails

    def cursor(self) -> Recording:
        return self

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def executemany(self, statement: str, rows: list[Any]) -> None:
        if self._fails:
            raise ConnectionError("the database went away")
        self.told.append((statement, len(rows)))

    def commit(self) -> None:
        self.told.append("commit")

    def rollback(self) -> None:
        self.told.append("rollback")

    def close(self) -> None:
        self.told.append("close")


def test_a_row_that_is_there_is_set_again() -> None:
    assert upsert_statement("shop.orders", ["sequence", "body"], ["sequence"]) == (
        "INSERT INTO `shop`.`orders` (`sequence`, `body`) VALUES (%s, %s) "
        "ON DUPLICATE KEY UPDATE `body` = VALUES(`body`)"
    )
    assert upsert_statement("seen", ["sequence"], ["sequence"]).endswith("UPDATE `sequence` = VALUES(`sequence`)")


@pytest.mark.parametrize(
    ("table", "columns", "key"),
    [
        ("orders; DROP TABLE x", ["a"], ["a"]),
        ("orders", ["a`b"], ["a`b"]),
        ("orders", ["a"], []),
        ("orders", ["a"], ["b"]),
    ],
)
def test_names_that_are_none_are_refused(table: str, columns: list[str], key: list[str]) -> None:
    with pytest.raises(MtsError) as error:
        upsert_statement(table, columns, key)
    assert error.value.code == "bad_request"


def test_a_task_writes_in_one_transaction() -> None:
    connection = Recording()
    assert write_rows(lambda: connection, "INSERT", [(n,) for n in range(2500)]) == 2500
    assert connection.told == [("INSERT", 1000), ("INSERT", 1000), ("INSERT", 500), "commit", "close"]


def test_a_task_that_fails_leaves_nothing() -> None:
    connection = Recording(fails=True)
    with pytest.raises(ConnectionError):
        write_rows(lambda: connection, "INSERT", [(1,)])
    assert connection.told == ["rollback", "close"]


@pytest.fixture
def database(mariadb_server: MariadbServer) -> Iterator[Any]:
    """How to connect to a database with an empty table of orders."""
    login: Any = {
        "host": "127.0.0.1",
        "port": mariadb_server.port,
        "user": mariadb_server.user,
        "password": mariadb_server.password,
    }
    name = f"test_{uuid.uuid4().hex}"

    def connect() -> Any:
        import pymysql

        return pymysql.connect(**login, database=name)

    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        columns = "sequence BIGINT PRIMARY KEY, body TEXT CHARACTER SET utf8mb4, taken INT DEFAULT 0"
        cursor.execute(f"CREATE TABLE {name}.orders ({columns})")
    yield connect
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


def orders(connect: Any) -> list[tuple[Any, ...]]:
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT sequence, body, taken FROM orders ORDER BY sequence")
        return list(cursor.fetchall())


STATEMENT = upsert_statement("orders", ["sequence", "body"], ["sequence"])


def test_on_mariadb_a_batch_that_comes_twice_changes_nothing(database: Any) -> None:
    rows = [(2**53 + number, f"строка {number} ✓") for number in range(1500)]
    assert write_rows(database, STATEMENT, rows) == 1500
    with database() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET taken = 1")  # what the sink does not write stays
        connection.commit()
    before = orders(database)
    assert write_rows(database, STATEMENT, rows) == 1500
    assert orders(database) == before
    write_rows(database, STATEMENT, [(2**53, "changed")])
    assert orders(database) == [(2**53, "changed", 1), *before[1:]]


def test_on_mariadb_a_task_that_fails_leaves_nothing(database: Any) -> None:
    def failing() -> Iterator[tuple[int, str]]:
        yield from ((number, "x") for number in range(2500))
        raise ConnectionError("the store went away")

    with pytest.raises(ConnectionError):
        write_rows(database, STATEMENT, failing())
    assert orders(database) == []
    with pytest.raises(Exception, match=r"Data too long"):
        write_rows(database, STATEMENT, [(1, "x"), (2, "x" * 70_000)])
    assert orders(database) == []


def test_a_frame_ends_in_mariadb_however_often_it_is_written(spark: Any, database: Any) -> None:
    frame = spark.range(0, 500, 1, 3).selectExpr("id AS sequence", "concat('order ', id) AS body")
    assert upsert(frame, database, "orders", ["sequence"]) == 500
    assert upsert(frame, database, "orders", ["sequence"]) == 500
    assert orders(database) == [(number, f"order {number}", 0) for number in range(500)]
    with pytest.raises(MtsError, match=r"headers is of type map<string,int>.*to_json\(headers\)"):
        upsert(frame.selectExpr("sequence", "map('a', 1) AS headers"), database, "orders", ["sequence"])
