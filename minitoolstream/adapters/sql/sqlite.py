"""SQLite: the embedded database. A file that the workers of a host share; writers take turns."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from minitoolstream.adapters.sql.database import Cursor, Row
from minitoolstream.domain.errors import MtsError, unavailable

T = TypeVar("T")
_BUSY_SECONDS = 10.0
_LOOK_AGAIN = 0.01
_PRIMARY_CODE = 0xFF  # of an extended one


class SqliteDialect:
    """SQLite has no locks of rows: a transaction that writes is alone."""

    now = "utc_now()"  # SQLite's own counts milliseconds
    for_update = ""
    skip_locked = ""
    do_nothing = "ON CONFLICT (filename, shard) DO NOTHING"

    def hint(self, index: str) -> str:
        return f"INDEXED BY {index}"


class SqliteSession:
    """`setting` is what an operator sets to have another database."""

    def __init__(self, file: Path, setting: str) -> None:
        self._file = file
        self._setting = setting
        self._connection: sqlite3.Connection | None = None

    def transaction(self, work: Callable[[Cursor], T]) -> T:
        try:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(_Cursor(connection.cursor()))
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result
        except sqlite3.OperationalError as error:
            raise unavailable(f"the database {self._file.name} cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise MtsError("internal", f"the database {self._file.name} refused a statement: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # For its user alone; SQLite gives the files beside it the same rights.
                os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                what = f"no place for {self._file.name}: {error.strerror}"
                raise MtsError("not_configured", f"{what}; {self._setting} names another database") from None
            # Closed by another thread than the one that used it.
            connection = sqlite3.connect(
                self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.create_function("utc_now", 0, lambda: datetime.now(UTC).replace(tzinfo=None).isoformat(" "))
            try:
                _switch_to_wal(connection)
                connection.execute("PRAGMA synchronous = FULL")
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Several workers may do it at the same moment, and here SQLite says at once that another is at it."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_AGAIN)


class _Cursor:
    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> object:
        return self._cursor.execute(statement.replace("%s", "?"), parameters)

    def fetchall(self) -> Sequence[Row]:
        return self._cursor.fetchall()
