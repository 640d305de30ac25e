"""Keep-alive connections to one host: reused newest first, at most so many, callers queue for the rest."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from minitoolstream.net.connection import Connection, HttpError, HttpTimeout

IDLE_LIMIT = 10.0
"""Seconds after which an idle connection is not used again: the peer may be closing it just now."""


class Pool:
    """Connections to one host. `_open` counts those idle, in use and being made."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        *,
        tls: ssl.SSLContext | None,
        limit: int,
        connect_timeout: float,
    ) -> None:
        self.name = name
        self.host_header = name.partition("://")[2]
        self._address = address
        self._tls = tls
        self._limit = limit
        self._connect_timeout = connect_timeout
        self._open = 0
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()

    async def acquire(self, timeout: float) -> Connection:
        oldest = asyncio.get_running_loop().time() - IDLE_LIMIT
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > oldest and not connection.closed:
                self._busy.add(connection)
                return connection
            self._open -= 1
            connection.abort()
        if self._open >= self._limit:
            handed = await self._queue(timeout)
            if handed:
                self._busy.add(handed)
                return handed
        else:
            self._open += 1
        return await self._connect()

    async def replace(self, connection: Connection) -> Connection:
        """A fresh connection in the place of a dead one."""
        self._busy.discard(connection)
        connection.finish()
        return await self._connect()

    def release(self, connection: Connection) -> None:
        self._busy.discard(connection)
        connection.finish()
        if not connection.reusable:
            self._free_place()
            return
        if self._hand_over(connection):
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def close(self) -> None:
        for connection in self._idle + list(self._busy):
            connection.abort()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        host, port = self._address
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._lost), host, port, ssl=self._tls
                )
        except TimeoutError:
            self._free_place()
            message = f"{self.name}: no connection within {self._connect_timeout:g} s"
            raise HttpTimeout(message, sent=False) from None
        except OSError as error:
            self._free_place()
            raise HttpError(f"{self.name}: cannot connect: {error}", sent=False) from None
        except BaseException:
            self._free_place()
            raise
        self._busy.add(connection)
        return connection

    async def _queue(self, timeout: float) -> Connection | None:
        """Wait for a connection handed over, or (None) for the place of one that was closed."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                handed = await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                given = waiter.result()
                if given:
                    self.release(given)
                else:
                    self._free_place()
            if isinstance(error, TimeoutError):
                message = f"{self.name}: all {self._limit} connections stayed busy for {timeout:g} s"
                raise HttpTimeout(message, sent=False) from None
            raise
        if handed and handed.closed:  # by the peer, between the hand-over and now
            return None
        return handed

    def _free_place(self) -> None:
        if not self._hand_over(None):
            self._open -= 1

    def _hand_over(self, connection: Connection | None) -> bool:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _lost(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
            self._free_place()
