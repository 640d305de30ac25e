"""One HTTP request on its way through the host: reading it with care, answering it once."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from minitoolstream.api.app import Response
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.router import Endpoint

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

BODY_SILENCE = 20.0
LINGER_ABOVE = 64 * 1024
LINGER_SECONDS = 2.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


class BodyBudget:
    """Bytes of bodies that one worker holds at once: what clients send must not decide how much memory it takes."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, count: int) -> None:
        if count > self._left:
            raise MtsError("overloaded", "too many large requests at once; try again shortly")
        self._left -= count

    def release(self, count: int) -> None:
        self._left += count


class Exchange:
    """What is known about a request before and after its route is found."""

    __slots__ = (
        "_receive",
        "body_bytes",
        "body_read",
        "endpoint",
        "error",
        "headers",
        "method",
        "path",
        "request_id",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        # As it came: a decoded path cannot tell `/` from `%2F`.
        self.path: str = scope["raw_path"].decode("latin-1")
        self.headers: dict[str, str] = {}
        self.request_id = ""
        self.body_read = False
        self.body_bytes = 0
        self.endpoint: Endpoint | None = None
        self.error: MtsError | None = None

    def read_headers(self, new_id: Callable[[], str]) -> None:
        """Values as HTTP has them, Latin-1; routes that expect UTF-8 in one say so themselves."""
        raw: RawHeaders = self.scope["headers"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        if len(self.headers) != len(raw):
            self._join_repeated(raw)
        given = self.headers.get("x-request-id")
        self.request_id = given if given is not None and _REQUEST_ID.fullmatch(given) else new_id()

    def _join_repeated(self, raw: RawHeaders) -> None:
        joined: dict[str, str] = {}
        for name, value in raw:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            joined[key] = f"{joined[key]}, {text}" if key in joined else text
        self.headers = joined

    async def read_body(self, endpoint: Endpoint, budget: BodyBudget) -> bytes:
        """The whole body, or `too_large` as soon as it is known to pass the limit."""
        declared = self.headers.get("content-length")
        if declared is None:
            if "transfer-encoding" not in self.headers:
                return b""
        elif int(declared) > endpoint.limit:
            raise endpoint.too_large()
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self._next_chunk()
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            budget.take(len(chunk))
            self.body_bytes += len(chunk)
            if self.body_bytes > endpoint.limit:
                self.body_read = not more
                raise endpoint.too_large()
            chunks.append(chunk)
        self.body_read = True
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _next_chunk(self) -> Any:
        try:
            async with asyncio.timeout(BODY_SILENCE):
                message = await self._receive()
        except TimeoutError:
            raise MtsError("request_timeout", f"nothing of the body came for {BODY_SILENCE:g} s") from None
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        return message

    async def respond(self, response: Response, more: RawHeaders, send: Send) -> None:
        body = response.body
        headers: RawHeaders = [
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            *more,
        ]
        for name, value in response.headers.items():
            headers.append((name.encode(), value.encode()))
        if "cache-control" not in response.headers:
            # Answers carry presigned URLs: whoever holds one may use it.
            headers.append((b"cache-control", b"no-store"))
        linger = not self.body_read and self._has_much_to_say()
        if linger:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": linger})
        if linger:
            await self._linger()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _has_much_to_say(self) -> bool:
        """A body was announced that nobody will read, and the server should not swallow it all."""
        if "transfer-encoding" in self.headers:
            return True
        declared = int(self.headers.get("content-length", "0"))
        return declared > LINGER_ABOVE or (declared > 0 and "expect" in self.headers)

    async def _linger(self) -> None:
        """Closing at once would reset the connection, and many clients would never see the answer."""
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
        except TimeoutError:
            return


def request_ids() -> Callable[[], str]:
    """Ids that no other process makes, at the price of a counter."""
    prefix = f"{secrets.token_hex(4)}-{os.getpid():x}"
    counter = itertools.count(1)
    return lambda: f"{prefix}-{next(counter):x}"
