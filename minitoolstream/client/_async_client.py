"""The client for asyncio; the sync one runs this in a thread."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from minitoolstream import config
from minitoolstream.client._batch import AnyItem, numbered, publish_items
from minitoolstream.client._buffer import BufferLimits
from minitoolstream.client._buffered import AsyncBufferedPublisher
from minitoolstream.client._download import Download
from minitoolstream.client._inline import publish_bytes
from minitoolstream.client._outlet import Outlet
from minitoolstream.client._producers import start_producer
from minitoolstream.client._read import Reader
from minitoolstream.client._resume import ResumeSlot
from minitoolstream.client._retry import RetryPolicy
from minitoolstream.client._source import FileSource
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import (
    Message,
    Page,
    ProducerSession,
    Result,
    Start,
    content_type_for,
    to_bytes,
)
from minitoolstream.client._upload import Upload
from minitoolstream.client._upload_calls import Announcement, UploadCalls
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.upload import Receipt
from minitoolstream.net.http1 import HttpClient

_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


class AsyncClient:
    """Publish and read messages, from asyncio.

    `urls`: the address of a host, or several of which any that answers is used; `token`: the API's bearer
    token. Without them: what `mts up` left under `.mts/`, or MTS_URL and MTS_TOKEN. What may be repeated is
    repeated for up to `retry_for` seconds. Every failure is an `MtsError`.

    Example:
        async with AsyncClient("http://127.0.0.1:8080", token) as client:
            receipt = await client.publish("orders", b"hello")
            print(receipt.sequence)
    """

    def __init__(
        self,
        urls: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        retry_for: float = 30.0,
        state_dir: Path | None = None,
    ) -> None:
        if urls is None or token is None:
            settings = config.load_settings()
            urls = settings["server.urls"] if urls is None else urls
            token = settings["server.token"] if token is None else token
        addresses = [urls] if isinstance(urls, str) else list(urls)
        if not addresses:
            raise MtsError("not_configured", "no host is known here: no stack was started, and MTS_URL is not set")
        self._transport = Transport(HttpClient(), addresses, token or "", RetryPolicy(retry_for))
        self._reader = Reader(self._transport)
        self._uploads = UploadCalls(self._transport)
        self._state_dir = state_dir

    @classmethod
    def from_settings(cls, settings: config.Settings, *, retry_for: float = 30.0) -> AsyncClient:
        """A client for the host that settings name, which `minitoolstream.config.load_settings` reads.

        Example: `AsyncClient.from_settings(load_settings())`
        """
        return cls(settings["server.urls"], settings["server.token"] or "", retry_for=retry_for)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; what still needs them fails with the code `closed`."""
        await self._transport.close()

    # -- publish

    async def publish(
        self,
        subject: str,
        data: bytes | str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        producer_id: str | None = None,
        seqno: int | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Publish a payload from memory: in one call when it is small, by ticket above 4 MiB.

        Retries never store it twice: each call has an idempotency key of its own unless one is given, or
        `producer_id` and `seqno` name the message. The receipt is `committed`; for a named producer it may be
        `stored`, which becomes visible when the uploads with lower seqnos have ended.

        Example: `await client.publish("orders", '{"id": 7}', content_type="application/json")`
        """
        announced = Announcement(content_type_for(data, content_type), dict(headers or {}), producer_id, seqno, epoch)
        return await publish_bytes(self._transport, subject, to_bytes(data), announced, idempotency_key)

    async def publish_file(
        self,
        subject: str,
        path: str | os.PathLike[str],
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        producer_id: str | None = None,
        seqno: int | None = None,
        epoch: int | None = None,
        progress: ProgressCallback | None = None,
        resume: bool = True,
        concurrency: int = 4,
    ) -> Receipt:
        """Publish a file of any size, straight into the object store; memory use does not grow with it.

        With `resume`, the same call after an interruption goes on where it stopped, also in another process:
        parts that arrived are compared with the file and not sent again. `progress` is called with the bytes
        done and the bytes in total.

        Example: `await client.publish_file("videos", "film.mp4", progress=lambda done, total: ...)`
        """
        check_subject(subject)
        if concurrency < 1:
            raise bad_request("concurrency is at least 1", field="concurrency")
        source = FileSource(Path(path))
        announced = Announcement(
            content_type or guess_content_type(source.path), dict(headers or {}), producer_id, seqno, epoch
        )
        with self._slot(subject, source, announced) if resume else nullcontext() as slot:
            return await Upload(
                self._transport,
                subject,
                source,
                announced,
                concurrency=concurrency,
                progress=progress,
                slot=slot,
            ).run()

    async def publish_batch(
        self,
        subject: str,
        items: Iterable[AnyItem],
        *,
        producer_id: str | None = None,
        first_seqno: int | None = None,
        epoch: int | None = None,
    ) -> list[Result]:
        """Publish many messages in as few calls as fit; a result for each, in order.

        Items are bytes, str, `Item`, or dicts with the fields of `Item`. With `producer_id`, the items get the
        seqnos from `first_seqno` on, and a call whose connection broke is safe to repeat, which the client then
        does; without it, such a call fails with `outcome_unknown`.

        Example: `results = await client.publish_batch("orders", [b"one", b"two"])`
        """
        described = list(numbered(items, producer_id, first_seqno, epoch))
        return await publish_items(self._transport, subject, described)

    def buffered(
        self,
        subject: str,
        *,
        linger: float = 0.01,
        batch_bytes: int = MIB,
        max_bytes: int | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        producer_id: str | None = None,
    ) -> AsyncBufferedPublisher:
        """A publisher that sends small messages together; see `AsyncBufferedPublisher`.

        At most `max_bytes` (8 batches unless given) wait in memory. With `producer_id` it starts a producer
        session and numbers the messages, so that retries store each exactly once.
        """
        limits = BufferLimits(linger, batch_bytes, max_bytes or 8 * batch_bytes)
        return AsyncBufferedPublisher(self._outlet(subject, content_type, headers, producer_id), limits)

    async def start_producer(self, subject: str, producer_id: str) -> ProducerSession:
        """A new session of a named producer: older ones can no longer publish.

        Example: `session = await client.start_producer("orders", "till-7")`
        """
        return await start_producer(self._transport, subject, producer_id)

    # -- uploads

    async def receipt(self, upload_id: str, *, wait: float = 0) -> Receipt:
        """What became of an upload; waits up to `wait` (at most 25) seconds for its commit."""
        return await self._uploads.receipt(upload_id, wait)

    async def complete(self, upload_id: str) -> Receipt:
        """Finish an upload whose payload is in the store; the same answer however often it is called."""
        return await self._uploads.complete(upload_id)

    async def abort(self, upload_id: str) -> Receipt:
        """Give an upload up; an error `upload_final` when it is committed already."""
        return await self._uploads.abort(upload_id)

    # -- read

    async def fetch(
        self,
        subject: str,
        *,
        start: Start = 1,
        limit: int = 100,
        partition: int | None = None,
        inline: bool = False,
    ) -> Page:
        """A page of messages from `start` on, with URLs of their payloads; `inline` brings small payloads along.

        Example: `page = await client.fetch("orders", start="first", limit=10)`
        """
        return await self._reader.fetch(subject, start, limit, partition, inline)

    async def messages(
        self, subject: str, *, start: Start = 1, partition: int | None = None, inline: bool = False
    ) -> AsyncGenerator[Message, None]:
        """Every message from `start` to what is the latest when reading begins.

        Example: `async for message in client.messages("orders"): ...`
        """
        async with aclosing(self._pages(subject, start, partition, inline)) as pages:
            async for page in pages:
                for message in page:
                    yield message

    async def read(
        self, subject: str, *, start: Start = 1, limit: int | None = None, partition: int | None = None
    ) -> AsyncGenerator[Message, None]:
        """As `messages`, with the payloads in `data`: packs are fetched whole, some ahead, their CRCs checked.

        Payloads above 16 MiB are left where they are (`data` is None): `download` them.

        Example: `async for message in client.read("orders", start=100): handle(message.data)`
        """
        async with aclosing(self._extents(subject, start, limit, partition)) as extents:
            async for extent in extents:
                for message in extent:
                    yield message

    async def get(self, sequence: int, *, inline: bool = False) -> Message:
        """One message; an error `not_found` when there is none with this sequence."""
        return await self._reader.get(sequence, inline)

    async def payload(self, message: Message | int) -> bytes:
        """A message's payload in memory, checked; for large ones use `download`."""
        return await self._reader.payload(await self._message(message))

    async def download(
        self,
        message: Message | int,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        progress: ProgressCallback | None = None,
    ) -> Message:
        """Save a payload to a path or an open binary file; size and SHA-256 (when known) are checked.

        To a path, it grows in a `.part` file beside it, which a later call goes on with, and appears under its
        name when it is complete and right. A wrong checksum is an error `checksum_mismatch`.

        Example: `await client.download(42, "film.mp4")`
        """
        found = await self._message(message)
        download = Download(self._transport, found, progress)
        if isinstance(target, str | os.PathLike):
            await download.to_path(Path(target))
        else:
            await download.to_file(target)
        return found

    async def latest(self, subject: str) -> int:
        """The sequence of the subject's last message; 0 when it has none."""
        return await self._reader.latest(subject)

    async def reconcile(self) -> dict[str, object]:
        """Have the host look now for uploads whose notification was lost; returns its counters."""
        return await self._transport.call("POST", "/v1/reconcile", dict[str, object], timeout=120)

    # -- what Client builds on too: many messages at a time, since each step between its threads costs

    def _pages(
        self, subject: str, start: Start, partition: int | None, inline: bool
    ) -> AsyncGenerator[tuple[Message, ...], None]:
        return self._reader.pages(subject, start, partition, inline)

    def _extents(
        self, subject: str, start: Start, limit: int | None, partition: int | None
    ) -> AsyncGenerator[list[Message], None]:
        return self._reader.read(subject, start, limit, partition)

    def _outlet(
        self, subject: str, content_type: str | None, headers: Mapping[str, str] | None, producer_id: str | None
    ) -> Outlet:
        return Outlet(self._transport, subject, content_type, headers, producer_id)

    async def _message(self, given: Message | int) -> Message:
        return given if isinstance(given, Message) else await self._reader.get(given)

    def _slot(self, subject: str, source: FileSource, announced: Announcement) -> ResumeSlot:
        folder = self._state_dir or config.user_state_dir()
        return ResumeSlot(
            folder,
            *sorted(self._transport.urls),
            subject,
            str(source.path),
            announced.producer_id or "",
            str(announced.seqno),
        )


def guess_content_type(path: Path) -> str:
    kind, encoding = mimetypes.guess_type(path.name)
    if encoding:
        return _COMPRESSED.get(encoding, DEFAULT_CONTENT_TYPE)
    return kind or DEFAULT_CONTENT_TYPE
