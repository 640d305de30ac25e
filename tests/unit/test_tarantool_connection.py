"""What is said when Tarantool is away: whether the call may have had an effect."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.adapters.tarantool.connection import Connection
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.ports import free_port


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


def test_a_program_without_logging_hears_of_it_once_by_the_error_alone() -> None:
    call = (
        "import asyncio; from tests.unit.test_tarantool_connection import connection, refusal;"
        "asyncio.run(refusal(connection()))"
    )
    ran = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
