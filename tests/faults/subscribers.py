"""Hundreds of subscribers in one loop: streams of events and long polls over bare connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

from tests.live import Live

_PAUSE = 0.1


class Subscriber:
    """Reads from the beginning on, and again from where it was when the connection ends."""

    def __init__(self, live: Live, subject: str, *, streams: bool) -> None:
        self.seen: list[int] = []
        self.connections = 0
        self._live, self._subject, self._streams = live, subject, streams
        self._next = 1

    async def run(self) -> None:
        while True:
            with suppress(OSError, ValueError, EOFError):
                await (self._follow() if self._streams else self._poll())
            await asyncio.sleep(_PAUSE)

    async def _follow(self) -> None:
        async for line in self._answer("start=first", accept="text/event-stream"):
            if line.startswith(b"data:"):
                self.seen.append(int(json.loads(line[5:])["sequence"]))
            elif line.startswith(b"id:"):
                self._next = int(line[3:]) + 1

    async def _poll(self) -> None:
        async for line in self._answer(f"start={self._next}&wait=20", accept="application/json"):
            page = json.loads(line)
            self.seen += [int(message["sequence"]) for message in page["messages"]]
            self._next = int(page["next_sequence"])

    async def _answer(self, query: str, accept: str) -> AsyncIterator[bytes]:
        """The lines of an answer with status 200."""
        url = urlsplit(self._live.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=2**20)
        try:
            writer.write(
                f"GET /v1/subjects/{self._subject}/subscribe?{query} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\n"
                f"authorization: Bearer {self._live.token}\r\nlast-event-id: {self._next - 1}\r\n\r\n".encode()
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise ValueError(head)
            self.connections += 1
            if b"content-length:" in head:
                size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                yield await reader.readexactly(size)
                return
            rest = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                lines = (rest + await reader.readexactly(size)).split(b"\n")
                await reader.readexactly(2)
                rest = lines.pop()
                for line in lines:
                    yield line
        finally:
            writer.close()
