"""One HTTP request on its way through the host: reading it with care, answering it once."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from minitoolstream.api.app import Response, sent_headers
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.host.incoming import Headers, Incoming
from minitoolstream.host.router import Endpoint
from minitoolstream.host.streaming import DisconnectedError, send_stream, until_left

BODY_SILENCE = 20.0
LINGER_ABOVE = 64 * 1024
LINGER_SECONDS = 2.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


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
        "_incoming",
        "body_bytes",
        "body_read",
        "endpoint",
        "error",
        "headers",
        "method",
        "path",
        "query",
        "request_id",
    )

    def __init__(self, incoming: Incoming, new_id: Callable[[], str]) -> None:
        self._incoming = incoming
        self.method = incoming.method
        self.path = incoming.path
        self.query = incoming.query
        self.headers = incoming.headers
        given = self.headers.get("x-request-id")
        self.request_id = given if given is not None and _REQUEST_ID.fullmatch(given) else new_id()
        self.body_read = False
        self.body_bytes = 0
        self.endpoint: Endpoint | None = None
        self.error: MtsError | None = None

    async def read_body(self, endpoint: Endpoint, budget: BodyBudget) -> bytes:
        """The whole body, or `too_large` as soon as it is known to pass the limit."""
        declared = self.headers.get("content-length")
        if declared is None:
            coding = self.headers.get("transfer-encoding")
            if coding is None:
                return b""
            if coding.lower() != "chunked":
                raise bad_request("of transfer codings, this server knows `chunked` alone", field="transfer-encoding")
        elif int(declared) > endpoint.limit:
            raise endpoint.too_large()
        whole = self._incoming.whole_body()
        if whole is not None:
            return self._take(whole, endpoint, budget)
        chunks: list[bytes] = []
        more = True
        while more:
            chunk, more = await self._next_chunk()
            budget.take(len(chunk))
            self.body_bytes += len(chunk)
            if self.body_bytes > endpoint.limit:
                self.body_read = not more
                raise endpoint.too_large()
            chunks.append(chunk)
        self.body_read = True
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _take(self, body: bytes, endpoint: Endpoint, budget: BodyBudget) -> bytes:
        """A body that is there already: nothing to wait for."""
        budget.take(len(body))
        self.body_bytes = len(body)
        self.body_read = True
        if len(body) > endpoint.limit:
            raise endpoint.too_large()
        return body

    async def _next_chunk(self) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(BODY_SILENCE):
                return await self._incoming.receive()
        except TimeoutError:
            raise MtsError("request_timeout", f"nothing of the body came for {BODY_SILENCE:g} s") from None

    async def until_left(self, work: Awaitable[Response]) -> Response:
        """The answer of a route that may take long; DisconnectedError when the client does not wait for it."""
        return await until_left(work, self._incoming)

    async def respond(self, response: Response, more: Headers) -> None:
        headers = sent_headers(response, self.request_id, more)
        if response.stream is not None:
            await self._stream(response, headers)
            return
        linger = not self.body_read and self._has_much_to_say()
        self._incoming.answer(response.status, headers, response.body, last=linger)
        if linger:
            await self._linger()

    async def _stream(self, response: Response, headers: Headers) -> None:
        assert response.stream is not None
        self._incoming.begin(response.status, headers)
        with suppress(DisconnectedError):
            await send_stream(response.stream, self._incoming)
            self._incoming.end()

    def _has_much_to_say(self) -> bool:
        """A body was announced that nobody will read, and the server should not swallow it all."""
        if "transfer-encoding" in self.headers:
            return True
        declared = int(self.headers.get("content-length", "0"))
        return declared > LINGER_ABOVE or (declared > 0 and "expect" in self.headers)

    async def _linger(self) -> None:
        """Closing at once would reset the connection, and many clients would never see the answer."""
        with suppress(TimeoutError, DisconnectedError):
            async with asyncio.timeout(LINGER_SECONDS):
                while (await self._incoming.receive())[1]:
                    pass


def request_ids() -> Callable[[], str]:
    """Ids that no other process makes, at the price of a counter."""
    prefix = f"{secrets.token_hex(4)}-{os.getpid():x}"
    counter = itertools.count(1)
    return lambda: f"{prefix}-{next(counter):x}"
