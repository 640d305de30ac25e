"""Reading: pages of metadata, and whole stretches with their payloads."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from minitoolstream.api import schema
from minitoolstream.client._codec import decode, expanded
from minitoolstream.client._extents import messages_of
from minitoolstream.client._store import STORE_TIMEOUT, store_error, store_unreachable
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Message, Page, Start, message_of, page_of, start_word
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_FETCH_LIMIT, MIB
from minitoolstream.domain.subject import check_subject
from minitoolstream.net.http1 import HttpError

LARGEST_READ = 16 * MIB
"""Payloads above it are not read into memory by `read`."""
LARGEST_PACK = 32 * MIB
"""Packs above it neither: a producer may have uploaded one of any size."""
MOVED = frozenset({"forbidden", "payload_missing"})
"""What the store says to a URL that has expired, or whose payload was moved when a neighbour of it was deleted."""
_AHEAD = 4
"""Extents fetched ahead of the reader."""


class Reader:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def fetch(
        self,
        subject: str,
        start: Start = 1,
        limit: int = 100,
        partition: int | None = None,
        inline: bool = False,
    ) -> Page:
        query = {
            "start": start_word(start),
            "limit": limit,
            "partition": partition,
            "inline": "true" if inline else None,
        }
        page = page_of(await self._page(subject, query, schema.Page))
        return replace(page, messages=tuple(await expanded(page.messages)))

    async def pages(
        self, subject: str, start: Start, partition: int | None, inline: bool
    ) -> AsyncGenerator[tuple[Message, ...], None]:
        """All pages from `start` to what is the latest message when reading begins."""
        end: int | None = None
        while True:
            page = await self.fetch(subject, start, MAX_FETCH_LIMIT, partition, inline)
            end = page.latest_sequence if end is None else end
            yield tuple(message for message in page.messages if message.sequence <= end)
            if page.next_sequence > end or page.next_sequence == start:
                return
            start = page.next_sequence

    async def latest(self, subject: str) -> schema.Latest:
        return await self.transport.call("GET", f"/v1/subjects/{check_subject(subject)}/latest", schema.Latest)

    async def get(self, sequence: int, inline: bool = False) -> Message:
        sequence = check_number(sequence, "sequence")
        query = {"inline": "true"} if inline else None
        answer = await self.transport.call("GET", f"/v1/messages/{sequence}", schema.Message, query=query)
        return (await expanded([message_of(answer)]))[0]

    async def read(
        self, subject: str, start: Start, limit: int | None, partition: int | None
    ) -> AsyncGenerator[list[Message], None]:
        """Messages with payloads, an extent at a time: one GET for a whole pack, some of them ahead."""
        left = limit
        async with aclosing(self._loaded(subject, start, limit, partition)) as extents:
            async for messages in extents:
                taken = messages[:left]
                if taken:
                    yield taken
                if left is not None:
                    left -= len(taken)
                    if left <= 0:
                        return

    async def payload(self, message: Message) -> bytes:
        """The payload in memory, as it was published."""
        if message.data is not None:
            return message.data
        return await decode(await self.stored(message), message.codec, message.sequence)

    async def stored(self, message: Message) -> bytes:
        """What is stored, its size and checksum checked; of an unverified message neither is known."""
        if message.size == 0 and not message.unverified:
            return b""
        if message.url is None and not message.payload_missing:
            message = await self.get(message.sequence)
        must_be_there(message)
        while True:
            try:
                data = await self._get(message.url or "", message.range, once=message.fallback_url is not None)
                break
            except MtsError as error:
                message, before = await self.renewed(message, error), message
                if before.fallback_url is None:
                    data = await self._get(message.url or "", message.range)
                    break
        if not message.unverified:
            try:
                check(data, message.size, message.sha256, message.sequence)
            except MtsError:
                if message.fallback_url is None:
                    raise
                return await self.stored(from_home(message))
        return data

    async def renewed(self, message: Message, error: MtsError) -> Message:
        """The message as it is now, where the store's error can mean that its URL has expired, or that its payload was
        moved when a neighbour of it was deleted; without its copy, where that is what failed; else the error."""
        if message.fallback_url is not None:
            return from_home(message)
        if error.code not in MOVED:
            raise error
        now = await self.get(message.sequence)
        must_be_there(now)
        if error.code == "payload_missing" and now.object_name == message.object_name:
            raise error
        return now

    async def _page(self, subject: str, query: dict[str, Any], shape: type[Any]) -> Any:
        return await self.transport.call("GET", f"/v1/subjects/{check_subject(subject)}/messages", shape, query=query)

    async def _loaded(
        self, subject: str, start: Start, limit: int | None, partition: int | None
    ) -> AsyncGenerator[list[Message], None]:
        waiting: deque[asyncio.Task[list[Message]]] = deque()
        try:
            async for extent, first, last in self._extents(subject, start, limit, partition):
                waiting.append(asyncio.create_task(self._load(extent, first, last)))
                if len(waiting) == _AHEAD:
                    yield await waiting.popleft()
            while waiting:
                yield await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def stored_messages(self, subject: str, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """Messages with payloads as they are stored, an extent at a time, up to the sequence `end`; those too large for
        memory without."""
        async for extent, _, _ in self._extents(subject, start, None, None):
            found = [message for message in await self.load_moved(extent) if start <= message.sequence <= end]
            if found:
                yield found
            if int(extent.sequence) >= end:
                return

    async def _extents(
        self, subject: str, start: Start, limit: int | None, partition: int | None
    ) -> AsyncIterator[tuple[schema.Extent, int, int]]:
        """Extents with the first and last sequence to take of them, up to the latest when reading begins."""
        first: int | None = None
        end = 0
        while True:
            query = {
                "start": start_word(start),
                "limit": min(limit or MAX_FETCH_LIMIT, MAX_FETCH_LIMIT),
                "partition": partition,
                "view": "extents",
            }
            page: schema.ExtentPage = await self._page(subject, query, schema.ExtentPage)
            if first is None:
                end = int(page.latest_sequence)
                first = start if isinstance(start, int) else end if start == "last" else 0
            for extent in page.extents:
                if int(extent.sequence) - extent.count < end:
                    yield extent, first, end
            following = int(page.next_sequence)
            if following > end or following == start:
                return
            start = following

    async def _load(self, extent: schema.Extent, first: int, last: int) -> list[Message]:
        messages = await expanded(await self.load_moved(extent))
        if first <= messages[0].sequence and messages[-1].sequence <= last:
            return messages
        return [message for message in messages if first <= message.sequence <= last]

    async def load_moved(self, extent: schema.Extent) -> list[Message]:
        """As `load`; also when the payload was moved meanwhile, because a neighbour of it was deleted."""
        try:
            return await self.load(extent)
        except MtsError as error:
            if error.code != "payload_missing":
                raise
            now = await self._again(extent)
            if now is None or (now.object_name == extent.object_name and not now.payload_missing):
                raise
            return await self.load(now)

    async def load(self, extent: schema.Extent) -> list[Message]:
        """The messages of an extent with their payloads as stored, unless these are too large for memory."""
        largest = LARGEST_PACK if extent.framed else LARGEST_READ
        if extent.unverified or extent.payload_missing or extent.size > largest:
            return messages_of(extent, None)
        if extent.size == 0 and not extent.framed:
            return messages_of(extent, b"")
        try:
            body = await self._get(extent.url or "", extent.range)
        except MtsError as error:
            if error.code != "forbidden":
                raise
            now = await self._again(extent)  # its URL expired while the reader was busy with those before it
            if now is None:
                raise
            body = await self._get(now.url or "", now.range)
        if not extent.framed:
            check(body, extent.size, extent.sha256, int(extent.sequence))
        return messages_of(extent, body)

    async def _again(self, extent: schema.Extent) -> schema.Extent | None:
        """The extent as it is now; None when it is not the same messages any more."""
        query = {
            "start": int(extent.sequence) - extent.count + 1,
            "limit": 1,
            "partition": extent.partition,
            "view": "extents",
        }
        page: schema.ExtentPage = await self._page(extent.subject, query, schema.ExtentPage)
        now = page.extents[0] if page.extents else None
        same = now is not None and (now.sequence, now.count) == (extent.sequence, extent.count)
        return now if same else None

    async def _get(self, url: str, byte_range: str | None, *, once: bool = False) -> bytes:
        """`once`: there is another place to ask."""
        backoff = self.transport.retry.start()
        headers = {"range": byte_range} if byte_range else {}
        while True:
            try:
                response = await self.transport.http.request("GET", url, headers=headers, timeout=STORE_TIMEOUT)
            except HttpError as problem:
                if once:
                    raise store_unreachable(problem) from problem
                await backoff.pause(store_unreachable(problem))
                continue
            if response.status < 300:
                return response.body
            error = store_error(response.status, response.body)
            if once or not error.retryable:
                raise error
            await backoff.pause(error)


def from_home(message: Message) -> Message:
    """The message with the URL of its own payload instead of that of a copy."""
    return replace(
        message,
        url=message.fallback_url,
        range=message.fallback_range,
        fallback_url=None,
        fallback_range=None,
    )


def must_be_there(message: Message) -> None:
    if message.payload_missing:
        text = f"the payload of message {message.sequence} is missing in the object store"
        raise MtsError("payload_missing", text, {"sequence": message.sequence})


def check(data: bytes, size: int, sha256: str | None, sequence: int) -> None:
    """Raises unless the payload is what its metadata says."""
    check_digest(len(data), hashlib.sha256(data).hexdigest() if sha256 else None, size, sha256, sequence)


def check_digest(count: int, digest: str | None, size: int, sha256: str | None, sequence: int) -> None:
    if count != size:
        message = f"the payload of message {sequence} has {count} bytes instead of {size}"
        raise MtsError("size_mismatch", message, {"sequence": sequence})
    if sha256 and digest != sha256:
        message = f"the payload of message {sequence} does not have the SHA-256 of its metadata"
        raise MtsError("checksum_mismatch", message, {"sequence": sequence})
