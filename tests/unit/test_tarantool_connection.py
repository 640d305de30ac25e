"""What is said when Tarantool is away: whether the call may have had an effect."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.ports import free_port
from tests.servers import TarantoolServer


async def refusal(connection: Connection) -> MtsError:
    with pytest.raises(MtsError) as caught:
        await connection.call("page")
    assert (caught.value.code, caught.value.retryable) == ("unavailable", True)
    return caught.value


def connection() -> Any:
    return Connection(f"127.0.0.1:{free_port()}", "user", "", 0.2, NoMetrics())  # type: ignore[arg-type]


class NoMetrics:
    def operation(self, *_: object) -> None: ...


async def test_a_call_that_was_never_sent_has_no_unknown_outcome() -> None:
    down = connection()
    error = await refusal(down)
    await down.close()
    assert error.message == f"Tarantool at {down._address} cannot be reached"


async def test_a_call_without_an_answer_may_have_had_its_effect() -> None:
    async def silent(*_: object, **__: object) -> None:
        raise TimeoutError

    up = connection()
    up._connection = SimpleNamespace(is_connected=True, call=silent)
    assert "the outcome is unknown" in (await refusal(up)).message


async def test_an_answer_that_cannot_be_read_is_a_clear_error() -> None:
    """As one with a header of a row from before such names were refused."""

    async def named_badly(*_: object, **__: object) -> None:
        b"\xff".decode()

    up = connection()
    up._connection = SimpleNamespace(is_connected=True, call=named_badly)
    with pytest.raises(MtsError, match="`page` has a name that is not UTF-8") as caught:
        await up.call("page")
    assert (caught.value.code, caught.value.retryable) == ("internal", False)


class Relay:
    """Between a client and Tarantool. What was connected before `forget` is never answered again, nor closed."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._era = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def forget(self) -> None:
        self._era += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._address.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        era = self._era
        await asyncio.gather(self._pass_on(reader, far_writer, era), self._pass_on(far_reader, writer, era))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: int) -> None:
        while data := await reader.read(65536):
            if era == self._era:
                writer.write(data)
        writer.close()


async def test_a_connection_that_was_forgotten_meanwhile_is_replaced_before_it_is_used(
    tarantool_server: TarantoolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a Lambda that was frozen: the clock went on, and what is sent comes to nobody."""
    server, relay = tarantool_server, Relay(tarantool_server.address)
    monkeypatch.setattr("minitoolstream.adapters.tarantool.connection._PING", 0.2)
    async with relay as address:
        up: Any = Connection(address, server.user, server.password, 0.5, NoMetrics())  # type: ignore[arg-type]
        first = await up.call("time_get")
        relay.forget()
        assert "the outcome is unknown" in (await refusal(up)).message  # it was used a moment ago, and is trusted
        up._answered_at -= 60
        assert await up.call("time_get") >= first
        await up.close()


async def test_what_was_sent_and_answered_is_let_go_of_at_once(tarantool_server: TarantoolServer) -> None:
    """Not when the collector comes by: the connector's request and answer hold each other until then."""
    server = tarantool_server
    up = Connection(server.address, server.user, server.password, 2.0, NoMetrics())  # type: ignore[arg-type]
    items: list[object] = []
    page = await up.call("messages_get", "nosuch", 1, 10, None, False, None)
    await up.call("upload_commit", items, 60)
    assert [sys.getrefcount(page), sys.getrefcount(items)] == [2, 2], "the variable here, and the argument"
    await up.close()


def test_a_program_without_logging_hears_of_it_once_by_the_error_alone() -> None:
    call = (
        "import asyncio; from tests.unit.test_tarantool_connection import connection, refusal;"
        "asyncio.run(refusal(connection()))"
    )
    ran = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
