"""The connection to MariaDB: what goes wrong is told with what to do, and without secrets."""

from __future__ import annotations

import asyncio
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from minitoolstream import bootstrap
from minitoolstream.adapters.sql.database import Cursor
from minitoolstream.adapters.sql.mysql import MysqlPlace, MysqlSession
from minitoolstream.bundle import bundled
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.ports import free_port
from tests.servers import MariadbServer


@pytest.fixture
def place(mariadb_server: MariadbServer) -> MysqlPlace:
    url = mariadb_server.url(f"test_{uuid.uuid4().hex}")
    return MysqlPlace.from_url(url, mariadb_server.password, "MTS_PIPELINE_PASSWORD")


def ask(place: MysqlPlace, statement: str = "SELECT 1") -> object:
    session = MysqlSession(place)

    def work(cursor: Cursor) -> object:
        cursor.execute(statement)
        return cursor.fetchall()[0][0]

    try:
        return session.transaction(work)
    finally:
        session.close()


def refused(place: MysqlPlace, statement: str = "SELECT 1") -> MtsError:
    with pytest.raises(MtsError) as caught:
        ask(place, statement)
    assert "secret-of-the-test" not in str(caught.value)
    return caught.value


def test_a_database_that_is_missing_is_made(place: MysqlPlace) -> None:
    assert ask(place, "SELECT DATABASE()") == place.database


def test_a_wrong_password_names_the_setting_and_is_not_told(place: MysqlPlace) -> None:
    error = refused(replace(place, password="secret-of-the-test"))
    assert error.code == "not_configured"
    assert "MTS_PIPELINE_PASSWORD" in error.message
    assert "secret" not in repr(replace(place, password="secret-of-the-test"))


def test_a_connection_is_encrypted_and_checked(place: MysqlPlace, mariadb_server: MariadbServer) -> None:
    version = "SELECT variable_value FROM information_schema.session_status WHERE variable_name = 'Ssl_version'"
    assert str(ask(replace(place, tls=True, ca_file=mariadb_server.ca_file), version)).startswith("TLSv1.")


def test_the_setting_names_the_file(place: MysqlPlace, mariadb_server: MariadbServer) -> None:
    environ = {
        "MTS_PIPELINE_DATABASE": mariadb_server.url(place.database) + "?tls=true",
        "MTS_PIPELINE_PASSWORD": place.password,
        "MTS_PIPELINE_CA_FILE": mariadb_server.ca_file,
    }
    tracking = bootstrap.open_tracking(load_settings({"MTS_HOME": "/nonexistent", **environ}))
    asyncio.run(tracking.prepare())
    asyncio.run(tracking.close())


def test_a_certificate_that_nobody_trusts_is_told(place: MysqlPlace) -> None:
    error = refused(replace(place, tls=True))
    assert (error.code, error.retryable) == ("not_configured", False)
    assert "MTS_PIPELINE_CA_FILE" in error.message


def test_a_file_without_certificates_is_named(place: MysqlPlace, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        error = refused(replace(place, tls=True, ca_file=str(tmp_path / name)))
        assert error.code == "not_configured"
        assert name in error.message


def test_a_database_of_others_is_told(place: MysqlPlace) -> None:
    error = refused(replace(place, database="mysql"))
    assert (error.code, "create it and grant it" in error.message) == ("not_configured", True)
    assert refused(replace(place, database="others")).code == "not_configured"


def test_a_server_that_is_away_may_be_asked_again(place: MysqlPlace) -> None:
    error = refused(replace(place, port=free_port()))
    assert (error.code, error.retryable) == ("unavailable", True)


def test_a_statement_that_is_wrong_is_not_tried_again(place: MysqlPlace) -> None:
    error = refused(place, "SELECT 'secret-of-the-test' FROM nothing")
    assert (error.code, error.retryable) == ("internal", False)


def test_what_loses_against_another_is_done_again(place: MysqlPlace) -> None:
    """Two transactions that lock the same two rows in opposite order: the database ends one, which then runs again."""
    first, second = MysqlSession(place), MysqlSession(place)

    def prepare(cursor: Cursor) -> None:
        cursor.execute("CREATE TABLE pair (id INT PRIMARY KEY, value INT) ENGINE = InnoDB")
        cursor.execute("INSERT INTO pair VALUES (1, 0), (2, 0)")

    first.transaction(prepare)
    both_hold_one, runs = threading.Barrier(2, timeout=30), []

    def crossing(own: int, other: int) -> None:
        tried = 0

        def work(cursor: Cursor) -> None:
            nonlocal tried
            tried += 1
            cursor.execute("UPDATE pair SET value = value + 1 WHERE id = %s", [own])
            if tried == 1:
                both_hold_one.wait()
            cursor.execute("UPDATE pair SET value = value + 1 WHERE id = %s", [other])

        (first if own == 1 else second).transaction(work)
        runs.append(tried)

    threads = [threading.Thread(target=crossing, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(runs) == [1, 2]
    assert ask(place, "SELECT SUM(value) FROM pair") == 4
    first.close()
    second.close()


def test_both_databases_get_the_same_columns(place: MysqlPlace, tmp_path: Path) -> None:
    import sqlite3

    for table, file in (("pipeline_tracking", "pipeline_ddl"), ("pipeline_result", "shard_ddl")):
        database = sqlite3.connect(tmp_path / f"{file}.db")
        database.executescript(bundled("db").joinpath(f"{file}_sqlite.sql").read_text("utf-8"))
        there = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        session = MysqlSession(place)

        def columns(cursor: Cursor, table: str = table, file: str = file) -> list[str]:
            cursor.execute(bundled("db").joinpath(f"{file}.sql").read_text("utf-8"))
            cursor.execute(f"SHOW COLUMNS FROM {table}")
            return [row[0] for row in cursor.fetchall()]

        assert session.transaction(columns) == there
        session.close()
