"""Tarantool as a child process: its command, and when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asynctnt

from minitoolstream.bundle import bundled
from minitoolstream.stack.ports import split_address
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program

MIB = 2**20


def launch(
    program: Program,
    *,
    address: str,
    data: Path,
    log: Path,
    user: str,
    password_file: Path,
    memory: int = 256 * MIB,
    wal_mode: str = "write",
    extra_environ: Mapping[str, str] | None = None,
) -> Launch:
    """The password goes by a file: an environment can be read by every process of the same user."""
    data.mkdir(parents=True, exist_ok=True)
    return Launch(
        name="Tarantool",
        command=[str(program.path), str(bundled("tarantool") / "init.lua")],
        log=log,
        folder=data,
        environ={
            **program.environ,
            "MTS_TARANTOOL_LISTEN": address,
            "MTS_TARANTOOL_DIR": str(data),
            "MTS_TARANTOOL_MEMORY": str(memory),
            "MTS_TARANTOOL_WAL_MODE": wal_mode,
            "MTS_TARANTOOL_USER": user,
            "MTS_TARANTOOL_PASSWORD_FILE": str(password_file),
            **(extra_environ or {}),
        },
    )


def login_problem(address: str, user: str, password: str, timeout: float = 3.0) -> str | None:
    """None when Tarantool answers and takes the login, else what it said."""
    # In a thread of its own, since the caller may be inside an event loop.
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, _login_problem(address, user, password, timeout)).result()


async def _login_problem(address: str, user: str, password: str, timeout: float) -> str | None:
    host, port = split_address(address, 3301)
    connection = asynctnt.Connection(
        host=host,
        port=port,
        username=user,
        password=password,
        connect_timeout=timeout,
        request_timeout=timeout,
        reconnect_timeout=0,
        fetch_schema=False,
        auto_refetch_schema=False,
    )
    try:
        await asyncio.wait_for(connection.connect(), timeout)
        await connection.ping()
    except (OSError, TimeoutError, asynctnt.exceptions.TarantoolError) as error:
        return str(error) or type(error).__name__
    finally:
        await connection.disconnect()
    return None
