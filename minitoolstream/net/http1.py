"""The client: pooled keep-alive connections, a request in some 100 us of CPU.

    client = HttpClient()
    answer = await client.request("PUT", url, headers={"content-type": "text/plain"}, body=b"hello")
    async with client.stream("GET", url) as answer:
        async for chunk in answer.chunks(): ...

`timeout` is how long the peer may stay silent, so transfers of any size fit; bound the whole with
`asyncio.timeout`. Messages of errors name the host but never the URL: presigned URLs are secrets.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypedDict, Unpack

from minitoolstream.net.connection import Body, Connection, HttpError, HttpTimeout
from minitoolstream.net.pool import Pool

__all__ = ["Body", "HttpClient", "HttpError", "HttpResponse", "HttpTimeout", "StreamedResponse"]

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(?:([/?][!-~]*))?")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


@dataclass(slots=True)
class HttpResponse:
    """A whole answer; names of headers are lower-case. `resent`: the request may have been carried before."""

    status: int
    headers: dict[str, str]
    body: bytes
    resent: bool = False


class Options(TypedDict, total=False):
    """What a request may carry.

    `content_length` is needed when the body is an async iterable. A pooled connection that the peer had
    closed meanwhile is replaced, and the request sent again, when that is safe: the body is not an async
    iterable, and the method is idempotent, unless `retry_stale` says what the request is.
    """

    headers: Mapping[str, str] | None
    body: Body
    content_length: int | None
    timeout: float | None
    retry_stale: bool | None


class StreamedResponse:
    """An answer whose body is still on its way."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece, once."""
        return self._connection.chunks()


class HttpClient:
    """Belongs to one event loop. Safe to share between its tasks."""

    def __init__(
        self,
        pool_per_host: int = 64,
        connect_timeout: float = 5.0,
        timeout: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._pool_per_host = pool_per_host
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._ssl = ssl_context
        self._pools: dict[str, Pool] = {}
        self._closed = False

    async def request(self, method: str, url: str, **options: Unpack[Options]) -> HttpResponse:
        """The whole answer."""
        pool, connection, resent = await self._exchange(method, url, streaming=False, **options)
        answer = HttpResponse(connection.status, connection.headers, connection.take_body(), resent)
        pool.release(connection)
        return answer

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Unpack[Options]) -> AsyncIterator[StreamedResponse]:
        """As `request`, but the body is read with `chunks()`. Leaving early closes the connection."""
        pool, connection, _ = await self._exchange(method, url, streaming=True, **options)
        try:
            yield StreamedResponse(connection)
        finally:
            pool.release(connection)

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()

    async def _exchange(
        self,
        method: str,
        url: str,
        *,
        streaming: bool,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        content_length: int | None = None,
        timeout: float | None = None,
        retry_stale: bool | None = None,
    ) -> tuple[Pool, Connection, bool]:
        size = _size(body, content_length)
        pool, target = self._locate(url)
        head = _head(method, target, pool.host_header, headers, size)
        timeout = self._timeout if timeout is None else timeout
        idempotent = method in _REPEATABLE if retry_stale is None else retry_stale
        repeatable = idempotent and not isinstance(body, AsyncIterable)
        self._check_open()
        connection = await pool.acquire(timeout)
        resent = False
        while True:
            try:
                self._check_open()
                await connection.exchange(method, head, body, size, timeout=timeout, streaming=streaming)
            except BaseException as error:
                stale = connection.used and not connection.answered and type(error) is HttpError
                if not (stale and repeatable) or self._closed:
                    pool.release(connection)
                    if isinstance(error, HttpError):
                        raise type(error)(f"{pool.name}: {error}", sent=error.sent) from None
                    raise
            else:
                return pool, connection, resent
            resent = True
            try:
                connection = await pool.replace(connection)
            except HttpError as error:
                raise type(error)(str(error), sent=True) from None

    def _check_open(self) -> None:
        if self._closed:
            raise HttpError("the client is closed", sent=False)

    def _locate(self, url: str) -> tuple[Pool, str]:
        match = _URL.fullmatch(url)
        if not match:
            raise ValueError("not an http or https URL of printable ASCII characters")
        scheme, host, port, target = match.groups()
        name = f"{scheme}://{host}:{port}" if port else f"{scheme}://{host}"
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(
                name,
                (host.strip("[]"), int(port or (443 if scheme == "https" else 80))),
                tls=self._tls() if scheme == "https" else None,
                limit=self._pool_per_host,
                connect_timeout=self._connect_timeout,
            )
        target = (target or "/").partition("#")[0]
        return pool, target if target[0] == "/" else "/" + target

    def _tls(self) -> ssl.SSLContext:
        if self._ssl is None:
            self._ssl = ssl.create_default_context()
        return self._ssl


def _size(body: Body, content_length: int | None) -> int:
    if isinstance(body, AsyncIterable):
        if content_length is None:
            raise ValueError("a body that is an async iterable needs content_length")
        return content_length
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    if content_length not in (None, size):
        raise ValueError(f"content_length is {content_length}, the body has {size} bytes")
    return size


def _head(method: str, target: str, host: str, headers: Mapping[str, str] | None, size: int) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}"]
    for name, value in (headers or {}).items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            raise ValueError(f"{name!r} cannot be set as a header")
        lines.append(f"{name}: {value}")
    if size or method not in ("GET", "HEAD", "DELETE"):
        lines.append(f"content-length: {size}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError("a line break or NUL in the method or in a header's value")
    return f"{text}\r\n\r\n".encode()
