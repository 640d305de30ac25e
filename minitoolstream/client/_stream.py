"""A payload as it comes from the object store, block by block; goes on by range after a broken connection."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from minitoolstream.client._codec import Decoder
from minitoolstream.client._read import MOVED, Reader, check_digest, from_home, must_be_there
from minitoolstream.client._store import STORE_TIMEOUT, store_error, store_unreachable
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Message
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.net.http1 import HttpError, StreamedResponse

BLOCK = MIB


class StoredPayload:
    """What is stored of a message, from byte `count` on."""

    def __init__(self, transport: Transport, message: Message, count: int = 0) -> None:
        self._transport = transport
        self._reader = Reader(transport)
        self._message = message
        self.count = count

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        message = self._message
        if message.url is None and not message.payload_missing:
            message = self._message = await self._reader.get(message.sequence)
        must_be_there(message)
        if message.range or (message.size == 0 and not message.unverified):
            data = await self._reader.stored(message)  # part of a pack: small
            self.count += len(data)
            yield data
            return
        backoff = self._transport.retry.start()
        renewed = False
        while self._message.unverified or self.count < self._message.size:
            before = self.count
            try:
                async with (
                    self._transport.http.stream(
                        "GET",
                        self._message.url or "",
                        headers={"range": f"bytes={self.count}-"} if self.count else {},
                        timeout=STORE_TIMEOUT,
                    ) as response,
                    contextlib.aclosing(self._fresh(response)) as blocks,
                ):
                    async for block in blocks:
                        yield block
                return
            except HttpError as problem:
                if self._message.fallback_url is not None:
                    async for block in self._rest_from_home():
                        yield block
                    return
                if self.count > before:
                    backoff.progress()
                    renewed = False
                await backoff.pause(store_unreachable(problem))
            except MtsError as error:
                if self._message.fallback_url is not None:
                    async for block in self._rest_from_home():
                        yield block
                    return
                if error.code in MOVED and not renewed:
                    self._message = await self._reader.renewed(self._message, error)
                    renewed = True
                elif error.retryable:
                    await backoff.pause(error)
                else:
                    raise

    async def _rest_from_home(self) -> AsyncGenerator[bytes, None]:
        """The copy failed: what is left of it comes from the message's own payload."""
        home = StoredPayload(self._transport, from_home(self._message), self.count)
        skip = self.count if home._message.range else 0  # part of a pack comes whole
        async with contextlib.aclosing(home.blocks()) as blocks:
            async for block in blocks:
                rest = block[skip:]
                self.count += len(rest)
                yield rest

    async def _fresh(self, response: StreamedResponse) -> AsyncGenerator[bytes, None]:
        if response.status not in (200, 206):
            body = b"".join([chunk async for chunk in response.chunks()])
            raise store_error(response.status, body)
        skip = self.count if response.status == 200 else 0  # a proxy that knows no ranges starts over
        async with contextlib.aclosing(_gathered(response.chunks())) as blocks:
            async for block in blocks:
                fresh = block[skip:]
                skip -= len(block) - len(fresh)
                if fresh:
                    self.count += len(fresh)
                    yield fresh


async def payload_blocks(transport: Transport, message: Message) -> AsyncGenerator[bytes, None]:
    """The payload as it was published; what is stored is checked by the time the last block was given."""
    if message.data is not None:
        yield message.data
        return
    stored = StoredPayload(transport, message)
    digest = hashlib.sha256()
    decoder = Decoder(message.codec, message.sequence)
    async with contextlib.aclosing(stored.blocks()) as blocks:
        async for block in blocks:
            digest.update(block)
            for piece in decoder.feed(block):
                yield piece
    if not message.unverified:
        check_digest(stored.count, digest.hexdigest(), message.size, message.sha256, message.sequence)
    decoder.finish()


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Chunks gathered to a size that is worth a trip to a thread."""
    gathered: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            gathered.append(chunk)
            size += len(chunk)
            if size >= BLOCK:
                yield b"".join(gathered)
                gathered, size = [], 0
    except HttpError:
        if gathered:
            yield b"".join(gathered)
        raise
    if gathered:
        yield b"".join(gathered)
