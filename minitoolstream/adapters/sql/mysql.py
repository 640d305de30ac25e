"""MariaDB and MySQL by PyMySQL."""

from __future__ import annotations

import contextlib
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from minitoolstream.adapters.sql.database import Cursor
from minitoolstream.domain.errors import MtsError, unavailable

T = TypeVar("T")
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 15
_LOCK_SECONDS = 5  # below that: the server says so before we would hang up
_IDLE_SECONDS = 5.0
_TRIES = 5
_LOCK_WAIT, _DEADLOCK, _ALREADY_THERE = 1205, 1213, 1062
_OVERTAKEN = frozenset({_LOCK_WAIT, _DEADLOCK, _ALREADY_THERE})
"""Another transaction was faster, also with a row that was not there when this one looked: it is tried again."""
_PASSING = frozenset({_LOCK_WAIT, _DEADLOCK, 1040, 1053, 1152, 1158, 1159, 1160, 1161, 1290, 1836, 1927})
"""Of the server's errors those that pass: too many connections, stopping, read-only while a replica takes over."""
_CLIENTS = range(2000, 3000)
"""No connection, or one that broke."""
_UNKNOWN_DATABASE, _NO_DATABASE_RIGHT, _WRONG_LOGIN = 1049, 1044, 1045


@dataclass(frozen=True, slots=True)
class MysqlPlace:
    """`mysql://user@host:port/database`, with `?tls=true` for a connection that is checked and encrypted; the password
    comes from elsewhere and is never shown."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False, default="")
    password_name: str = ""
    tls: bool = False
    ca_file: str | None = None

    @classmethod
    def from_url(cls, url: str, password: str | None, password_name: str, ca_file: str | None = None) -> MysqlPlace:
        """`password_name` is the setting that a wrong one comes from; `ca_file` holds those whose certificates are
        trusted, in place of the system's."""
        parts = urlsplit(url)
        user, database = unquote(parts.username or ""), parts.path.strip("/")
        host, tls = parts.hostname or "127.0.0.1", parts.query == "tls=true"
        return cls(host, parts.port or 3306, user, database, password or "", password_name, tls, ca_file)

    def trusted(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # which SSLError is
            raise MtsError("not_configured", f"no certificates can be read from {self.ca_file}: {error}") from error


class MysqlDialect:
    now = "UTC_TIMESTAMP(6)"
    for_update = "FOR UPDATE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    do_nothing = "ON DUPLICATE KEY UPDATE filename = filename"

    def hint(self, index: str) -> str:
        return f"FORCE INDEX ({index})"


class MysqlSession:
    """Reconnects when the server was away. What lost against another transaction is tried again."""

    def __init__(self, place: MysqlPlace) -> None:
        self._place = place
        self._connection: Any = None
        self._used_at = 0.0

    def transaction(self, work: Callable[[Cursor], T]) -> T:
        import pymysql

        for attempt in range(_TRIES):
            try:
                return self._once(work)
            except pymysql.MySQLError as error:
                code = error.args[0] if error.args else None
                self._drop()
                if code not in _OVERTAKEN or attempt == _TRIES - 1:
                    raise self._translated(code, getattr(error, "original_exception", None)) from error
            except BaseException:
                self._rollback()
                raise
            time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311 # nosec B311 - in a thread of its own
        raise AssertionError("unreachable")

    def _once(self, work: Callable[[Cursor], T]) -> T:
        connection = self._opened()
        # Without autocommit, the first statement begins a transaction.
        with connection.cursor() as cursor:
            result = work(cast(Cursor, cursor))
        connection.commit()
        self._used_at = time.monotonic()
        return result

    def _opened(self) -> Any:
        import pymysql

        if self._connection is not None and time.monotonic() - self._used_at > _IDLE_SECONDS:
            try:
                self._connection.ping(reconnect=False)
            except pymysql.MySQLError:
                self._drop()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> Any:
        import pymysql

        try:
            return self._login(self._place.database)
        except pymysql.OperationalError as error:
            if error.args[0] != _UNKNOWN_DATABASE:
                raise
        connection = self._login(None)
        name = self._place.database.replace("`", "``")
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}`")
        connection.select_db(self._place.database)
        return connection

    def _login(self, database: str | None) -> Any:
        import pymysql

        place = self._place
        connection = pymysql.connect(
            host=place.host,
            port=place.port,
            user=place.user,
            password=place.password,
            database=database,
            charset="utf8mb4",
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            write_timeout=_ANSWER_SECONDS,
            autocommit=False,
            ssl=place.trusted() if place.tls else None,
            # A claim locks the rows that it takes, not the gaps between them.
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [_LOCK_SECONDS])
        return connection

    def _translated(self, code: object, cause: object) -> MtsError:
        """What the server says stays here: it may quote what was sent."""
        place = f"{self._place.host}:{self._place.port}"
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = f"the certificate of the database at {place} is not trusted ({cause.verify_message})"
            return MtsError("not_configured", f"{text}: set MTS_PIPELINE_CA_FILE")
        if code == _WRONG_LOGIN:
            text = f"the database at {place} refuses {self._place.user}"
            return MtsError("not_configured", f"{text}: set {self._place.password_name}")
        if code in {_NO_DATABASE_RIGHT, _UNKNOWN_DATABASE}:
            text = f"{self._place.user} may not use the database {self._place.database} at {place}"
            return MtsError("not_configured", f"{text}: create it and grant it")
        if not isinstance(code, int) or code == 0 or code in _PASSING or code in _CLIENTS:
            return unavailable(f"the database at {place} does not answer (error {code})")
        return MtsError("internal", f"the database at {place} refused a statement (error {code})")

    def _rollback(self) -> None:
        import pymysql

        try:
            if self._connection is not None:
                self._connection.rollback()
        except pymysql.MySQLError:
            self._drop()

    def _drop(self) -> None:
        import pymysql

        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                connection.close()

    def close(self) -> None:
        self._drop()
