"""One lazily opened connection to Tarantool, and the translation of what can go wrong with it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.ports import Metrics
from minitoolstream.request_id import request_id

# It tells of each try to connect, ten a second; where nobody set up logging, that would go to stderr.
logging.getLogger("asynctnt").addHandler(logging.NullHandler())

_RECONNECT_AFTER = 0.1
_IDLE = 20.0
"""Seconds without an answer, by the clock of the wall, after which a connection is asked whether it still is one: that
of a Lambda that was frozen may be forgotten by what lies between. Found out by a call, its outcome is unknown."""
_PING = 1.0
# Unknown function, access denied, unknown user, wrong password: trying again does not help.
_REFUSALS = frozenset({33, 42, 45, 47})


class Connection:
    """Calls stored functions by name. Connects on first use, and again by itself when the connection is lost."""

    def __init__(self, address: str, user: str, password: str, timeout: float, metrics: Metrics) -> None:
        host, _, port = address.rpartition(":")
        self._timeout = timeout
        self._metrics = metrics
        self._address = address
        self._connection = asynctnt.Connection(
            host=host.strip("[]"),
            port=int(port),
            username=user,
            password=password,
            fetch_schema=False,
            auto_refetch_schema=False,
            connect_timeout=min(timeout, 2.0),
            request_timeout=timeout,
            reconnect_timeout=_RECONNECT_AFTER,
        )
        self._opening: asyncio.Task[Any] | None = None
        self._answered_at = time.time()

    async def call(self, name: str, *arguments: Any, timeout: float | None = None) -> Any:
        """The function's first result. A refusal by the function is an MtsError with the function's code."""
        sent, given = False, [request_id.get() or "-", *arguments]
        try:
            if time.time() - self._answered_at > _IDLE and self._connection.is_connected:
                await self._prove()
            if not self._connection.is_connected:
                await self._open()
            sent = True
            response = await self._connection.call(name, given, timeout=timeout or self._timeout)
        except (TarantoolError, OSError, TimeoutError) as error:
            raise self._translated(name, error, sent=sent) from None
        except UnicodeError:
            self._metrics.operation("tarantool", name, "internal")
            raise MtsError("internal", f"what Tarantool answers to `{name}` has a name that is not UTF-8") from None
        self._answered_at = time.time()
        # The connector's request and its answer hold each other until the collector comes by, which is seldom: not what
        # they carried as well, or a host that answers pages and batches grows by hundreds of megabytes.
        given.clear()
        result = response.body.pop(0) if response.body else None
        if isinstance(result, dict) and "error" in result:
            self._metrics.operation("tarantool", name, result["error"]["code"])
            raise _refusal(result["error"])
        self._metrics.operation("tarantool", name, "ok")
        return result

    async def _prove(self) -> None:
        """Drops a connection that nobody answers on. Calls that wait for theirs meanwhile have lost it anyway."""
        try:
            await self._connection.ping(timeout=_PING)
        except (TarantoolError, OSError, TimeoutError):
            await self._connection.disconnect()

    async def _open(self) -> None:
        """Waits for the connection at most as long as a call may take; later calls share the attempt."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._connection.connect())
            self._opening.add_done_callback(_retrieve)
        async with asyncio.timeout(min(self._timeout, 1.5)):
            await asyncio.shield(self._opening)

    def _translated(self, name: str, error: Exception, *, sent: bool) -> MtsError:
        self._metrics.operation("tarantool", name, "unavailable")
        if isinstance(error, TarantoolDatabaseError) and error.code in _REFUSALS:
            return MtsError(
                "not_configured",
                f"Tarantool at {self._address} refuses `{name}`: tarantool.user, its password or its grants are wrong",
            )
        if not sent:
            return unavailable(f"Tarantool at {self._address} cannot be reached")
        return unavailable(f"Tarantool at {self._address} does not answer; the outcome is unknown, try again")

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        await self._connection.disconnect()


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _refusal(error: dict[str, Any]) -> MtsError:
    return MtsError(error["code"], error["message"], error.get("details"))
