"""Upserts into MySQL or MariaDB, without either."""

from __future__ import annotations

from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from spark_emr.sinks.sql import upsert_statement, write_rows


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
