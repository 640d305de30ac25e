"""Who may do what in Tarantool: nobody without a login, and the application's user only what is on a named list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tarantool.connection import Connection
from tarantool.error import DatabaseError, NetworkError

from minitoolstream.stack.ports import split_address
from tests.servers import TarantoolServer

LUA = "SELECT LUA('return box.cfg.work_dir')"
SPACES = ("message", "upload", "trash", "_user", "_vuser", "_vspace", "_func", "_priv", "_session_settings")

Attempt = Callable[[Any], Any]
ATTEMPTS: dict[str, Attempt] = {
    "eval": lambda guest: guest.eval("return 1"),
    "reading by sql": lambda guest: guest.execute('SELECT * FROM "message"'),
    "writing by sql": lambda guest: guest.execute("""DELETE FROM "message" WHERE "sequence" > 0"""),
    "users by sql": lambda guest: guest.execute('SELECT * FROM "_vuser"'),
    "lua by sql": lambda guest: guest.execute(LUA),
    "ddl by sql": lambda guest: guest.execute('CREATE TABLE "t" (a INT PRIMARY KEY)'),
    "a builtin": lambda guest: guest.call("box.schema.user.info", []),
    "a global": lambda guest: guest.call("os.getenv", ["HOME"]),
    "a module's function": lambda guest: guest.call("box.space.message:truncate", []),
    "the console": lambda guest: guest.call("dostring", ["return 1"]),
    "an internal": lambda guest: guest.call("box.internal.collation.create", []),
    "schema changes": lambda guest: guest.call("box.schema.space.create", ["mine"]),
    "loading code": lambda guest: guest.call("loadstring", ["return 1"]),
}


def connect(server: TarantoolServer, user: str | None = None, password: str | None = None) -> Any:
    host, port = split_address(server.address, 3301)
    return Connection(
        host, port, user=user, password=password, fetch_schema=False, reconnect_max_attempts=0, connection_timeout=5
    )


@pytest.fixture
def guest(tarantool_server: TarantoolServer) -> Any:
    return connect(tarantool_server)


@pytest.fixture
def application(tarantool_server: TarantoolServer) -> Any:
    return connect(tarantool_server, tarantool_server.user, tarantool_server.password)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_guest_can_do_nothing(guest: Any, name: str) -> None:
    with pytest.raises(DatabaseError):
        ATTEMPTS[name](guest)


def test_a_guest_cannot_keep_the_server_busy_by_a_query_that_reads_nothing(guest: Any) -> None:
    with pytest.raises(DatabaseError):
        guest.execute(
            "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT COUNT(*) FROM t"
        )


@pytest.mark.parametrize("function", ["messages_get", "upload_create", "get_next_sequence", "status_get", "time_get"])
def test_a_guest_cannot_call_our_functions(guest: Any, function: str) -> None:
    with pytest.raises(DatabaseError, match="denied"):
        guest.call(function, ["-", "orders", 1, 1])


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_applications_user_can_do_nothing_but_its_list(application: Any, name: str) -> None:
    with pytest.raises(DatabaseError):
        ATTEMPTS[name](application)


@pytest.mark.parametrize("space", SPACES)
def test_the_applications_user_can_neither_read_nor_write_a_space(application: Any, space: str) -> None:
    number = {"_user": 304, "_vuser": 305, "_vspace": 281, "_func": 296, "_priv": 312, "_session_settings": 380}
    # Our own spaces have the first numbers that users' spaces get.
    for space_id in [number[space]] if space in number else range(512, 530):
        with pytest.raises(DatabaseError):
            application.select(space_id, [])
        with pytest.raises(DatabaseError):
            application.insert(space_id, [1])
        with pytest.raises(DatabaseError):
            application.delete(space_id, [1])


def test_the_applications_user_can_call_its_list(application: Any) -> None:
    assert application.call("get_latest_sequence_for_subject", ["nothing-here"])[0] == 0
    assert "error" not in application.call("messages_get", ["-", "nothing-here", 1, 10])[0]


@pytest.mark.parametrize("password", ["", "wrong", "mts"])
def test_a_wrong_password_is_refused(tarantool_server: TarantoolServer, password: str) -> None:
    with pytest.raises((DatabaseError, NetworkError)):
        connect(tarantool_server, tarantool_server.user, password)


def test_the_admin_has_no_login(tarantool_server: TarantoolServer) -> None:
    with pytest.raises((DatabaseError, NetworkError)):
        connect(tarantool_server, "admin", "")
