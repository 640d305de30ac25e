"""SQLite as the embedded database: a file that several workers open and use at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minitoolstream.adapters.sql.database import Cursor
from minitoolstream.adapters.sql.sqlite import SqliteSession
from minitoolstream.domain.errors import MtsError

WORKERS = 8


def test_workers_that_start_together_all_get_in(tmp_path: Path) -> None:
    for number in range(30):
        together = threading.Barrier(WORKERS, timeout=30)

        def worker(_: int, file: Path = tmp_path / f"{number}.db", together: threading.Barrier = together) -> int:
            session = SqliteSession(file, "MTS_X_DATABASE")
            together.wait()

            def work(cursor: Cursor) -> int:
                cursor.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
                cursor.execute("INSERT INTO t VALUES (%s)", [1])
                return cursor.rowcount

            try:
                return session.transaction(work)
            finally:
                session.close()

        with ThreadPoolExecutor(WORKERS) as threads:
            assert sum(threads.map(worker, range(WORKERS))) == WORKERS


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"something else " * 100)
    with pytest.raises(MtsError, match=r"x\.db refused a statement"):
        SqliteSession(file, "MTS_X_DATABASE").transaction(lambda cursor: cursor.execute("SELECT 1"))


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MtsError, match="MTS_X_DATABASE") as caught:
        SqliteSession(tmp_path / "file" / "x.db", "MTS_X_DATABASE").transaction(
            lambda cursor: cursor.execute("SELECT 1")
        )
    assert caught.value.code == "not_configured"
