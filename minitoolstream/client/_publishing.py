"""The publishing half of the client for asyncio."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from minitoolstream import config
from minitoolstream.client._batch import AnyItem, numbered, publish_items
from minitoolstream.client._buffer import BufferLimits
from minitoolstream.client._buffered import AsyncBufferedPublisher
from minitoolstream.client._codec import encode
from minitoolstream.client._files import guess_content_type, publish_path
from minitoolstream.client._inline import INLINE_LIMIT, publish_bytes
from minitoolstream.client._outlet import Outlet
from minitoolstream.client._producers import start_producer
from minitoolstream.client._resume import ResumeSlot
from minitoolstream.client._source import FileSource
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._transaction import AsyncTransaction
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import ProducerSession, Result, content_type_for, to_bytes
from minitoolstream.client._upload_calls import Announcement, UploadCalls
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.subject_settings import check_codec
from minitoolstream.domain.upload import Receipt


class AsyncPublishing:
    """Part of `AsyncClient`."""

    _transport: Transport
    _uploads: UploadCalls
    _state_dir: Path | None

    async def publish(
        self,
        subject: str,
        data: bytes | str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
        codec: str | None = None,
        producer_id: str | None = None,
        seqno: int | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
        inline_limit: int = INLINE_LIMIT,
    ) -> Receipt:
        """Publish a payload from memory: in one call when it is small, by ticket above `inline_limit` (4 MiB).

        Messages of a `group` share a partition, and so keep their order; `codec` (gzip, zstd) compresses the
        payload, which readers undo. Retries never store it twice: each call has an idempotency key of its own
        unless one is given, or `producer_id` and `seqno` name the message. The receipt is `committed`; for a named
        producer it may be `stored`, which becomes visible when the uploads with lower seqnos have ended.

        Example: `await client.publish("orders", '{"id": 7}', content_type="application/json")`
        """
        announced = Announcement(
            content_type_for(data, content_type),
            dict(headers or {}),
            producer_id,
            seqno,
            epoch,
            group,
            check_codec(codec),
        )
        stored = await encode(to_bytes(data), announced.codec)
        return await publish_bytes(
            self._transport, subject, stored, announced, idempotency_key, inline_limit=inline_limit
        )

    async def publish_file(
        self,
        subject: str,
        path: str | os.PathLike[str],
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
        codec: str | None = None,
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
        done and the bytes in total. With a `codec`, a compressed copy is made among the temporary files first.

        Example: `await client.publish_file("videos", "film.mp4", progress=lambda done, total: ...)`
        """
        original = FileSource(Path(path))
        announced = Announcement(
            content_type or guess_content_type(original.path),
            dict(headers or {}),
            producer_id,
            seqno,
            epoch,
            group,
            check_codec(codec),
        )
        slot = self._slot(subject, original, announced) if resume else None
        return await publish_path(
            self._transport, subject, original, announced, concurrency=concurrency, progress=progress, slot=slot
        )

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
        codec: str | None = None,
        producer_id: str | None = None,
    ) -> AsyncBufferedPublisher:
        """A publisher that sends small messages together; see `AsyncBufferedPublisher`.

        At most `max_bytes` (8 batches unless given) wait in memory. With `producer_id` it starts a producer
        session and numbers the messages, so that retries store each exactly once.
        """
        limits = BufferLimits(linger, batch_bytes, max_bytes or 8 * batch_bytes)
        return AsyncBufferedPublisher(self._outlet(subject, content_type, headers, producer_id, codec), limits)

    async def start_producer(
        self, subject: str, producer_id: str, *, headers: Mapping[str, str] | None = None
    ) -> ProducerSession:
        """A new session of a named producer: older ones can no longer publish.

        `headers` are given once: each message that is published with the session's epoch has them, beneath its own.

        Example: `session = await client.start_producer("orders", "till-7")`
        """
        return await start_producer(self._transport, subject, producer_id, headers)

    def transaction(self, *, timeout: float | None = None) -> AsyncTransaction:
        """Publishes and acks that become visible together, or not at all; see `AsyncTransaction`."""
        return AsyncTransaction(self._transport, timeout)

    async def receipt(self, upload_id: str, *, wait: float = 0) -> Receipt:
        """What became of an upload; waits up to `wait` (at most 25) seconds for its commit."""
        return await self._uploads.receipt(upload_id, wait)

    async def complete(self, upload_id: str) -> Receipt:
        """Finish an upload whose payload is in the store; the same answer however often it is called."""
        return await self._uploads.complete(upload_id)

    async def abort(self, upload_id: str) -> Receipt:
        """Give an upload up; an error `upload_final` when it is committed already."""
        return await self._uploads.abort(upload_id)

    def _outlet(
        self,
        subject: str,
        content_type: str | None,
        headers: Mapping[str, str] | None,
        producer_id: str | None,
        codec: str | None,
    ) -> Outlet:
        return Outlet(
            self._transport,
            subject,
            content_type=content_type,
            headers=headers,
            producer_id=producer_id,
            codec=codec,
        )

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
