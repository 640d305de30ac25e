"""The client for ordinary code: the same methods as AsyncClient, each waits for its result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from minitoolstream.client._async_client import AsyncClient
from minitoolstream.client._batch import AnyItem
from minitoolstream.client._buffer import BufferLimits
from minitoolstream.client._buffered_sync import BufferedPublisher
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._store import ProgressCallback
from minitoolstream.client._types import Message, Page, ProducerSession, Result, Start
from minitoolstream.config import Settings
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.upload import Receipt


class Client:
    """Publish and read messages. May be shared between threads.

    Arguments as those of `AsyncClient`; without any, it finds the stack that `mts up` started here, or takes
    MTS_URL and MTS_TOKEN. Every failure is an `MtsError`. `progress` functions are called in another thread.

    Example:
        with Client() as client:
            receipt = client.publish("orders", b"hello")
            for message in client.fetch("orders").messages:
                print(message.sequence, client.payload(message))
    """

    def __init__(
        self,
        urls: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        retry_for: float = 30.0,
        state_dir: Path | None = None,
    ) -> None:
        self._client = AsyncClient(urls, token, retry_for=retry_for, state_dir=state_dir)
        self._thread = LoopThread()

    @classmethod
    def from_settings(cls, settings: Settings, *, retry_for: float = 30.0) -> Client:
        """A client for the host that settings name, which `minitoolstream.config.load_settings` reads.

        Example: `Client.from_settings(load_settings())`
        """
        return cls(settings["server.urls"], settings["server.token"] or "", retry_for=retry_for)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what still runs, which then fails with the code `closed`; close the connections. Idempotent."""
        self._thread.close(self._client.close)

    # -- publish

    def publish(
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
        """Publish a payload from memory, see `AsyncClient.publish`.

        Example: `client.publish("orders", '{"id": 7}', content_type="application/json").sequence`
        """
        return self._thread.run(
            self._client.publish(
                subject,
                data,
                content_type=content_type,
                headers=headers,
                producer_id=producer_id,
                seqno=seqno,
                epoch=epoch,
                idempotency_key=idempotency_key,
            )
        )

    def publish_file(
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
        """Publish a file of any size; the same call goes on after an interruption, see `AsyncClient.publish_file`.

        Example: `client.publish_file("videos", "film.mp4")`
        """
        return self._thread.run(
            self._client.publish_file(
                subject,
                path,
                content_type=content_type,
                headers=headers,
                producer_id=producer_id,
                seqno=seqno,
                epoch=epoch,
                progress=progress,
                resume=resume,
                concurrency=concurrency,
            )
        )

    def publish_batch(
        self,
        subject: str,
        items: Iterable[AnyItem],
        *,
        producer_id: str | None = None,
        first_seqno: int | None = None,
        epoch: int | None = None,
    ) -> list[Result]:
        """Publish many messages in few calls, see `AsyncClient.publish_batch`.

        Example: `results = client.publish_batch("orders", [b"one", Item(b"two", headers={"n": "2"})])`
        """
        return self._thread.run(
            self._client.publish_batch(subject, items, producer_id=producer_id, first_seqno=first_seqno, epoch=epoch)
        )

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
    ) -> BufferedPublisher:
        """A publisher that sends small messages together; see `BufferedPublisher`.

        At most `max_bytes` (8 batches unless given) wait in memory. With `producer_id` it starts a producer
        session and numbers the messages, so that retries store each exactly once.
        """
        limits = BufferLimits(linger, batch_bytes, max_bytes or 8 * batch_bytes)
        outlet = self._client._outlet(subject, content_type, headers, producer_id)
        return BufferedPublisher(self._thread, outlet, limits)

    def start_producer(self, subject: str, producer_id: str) -> ProducerSession:
        """A new session of a named producer: older ones can no longer publish."""
        return self._thread.run(self._client.start_producer(subject, producer_id))

    # -- uploads

    def receipt(self, upload_id: str, *, wait: float = 0) -> Receipt:
        """What became of an upload; waits up to `wait` (at most 25) seconds for its commit."""
        return self._thread.run(self._client.receipt(upload_id, wait=wait))

    def complete(self, upload_id: str) -> Receipt:
        """Finish an upload whose payload is in the store; the same answer however often it is called."""
        return self._thread.run(self._client.complete(upload_id))

    def abort(self, upload_id: str) -> Receipt:
        """Give an upload up; an error `upload_final` when it is committed already."""
        return self._thread.run(self._client.abort(upload_id))

    # -- read

    def fetch(
        self,
        subject: str,
        *,
        start: Start = 1,
        limit: int = 100,
        partition: int | None = None,
        inline: bool = False,
    ) -> Page:
        """A page of messages from `start` on, see `AsyncClient.fetch`.

        Example: `page = client.fetch("orders", start="first", limit=10)`
        """
        return self._thread.run(
            self._client.fetch(subject, start=start, limit=limit, partition=partition, inline=inline)
        )

    def messages(
        self, subject: str, *, start: Start = 1, partition: int | None = None, inline: bool = False
    ) -> Iterator[Message]:
        """Every message from `start` to what is the latest when reading begins.

        Example: `for message in client.messages("orders"): ...`
        """
        for page in self._thread.iterate(self._client._pages(subject, start, partition, inline)):
            yield from page

    def read(
        self, subject: str, *, start: Start = 1, limit: int | None = None, partition: int | None = None
    ) -> Iterator[Message]:
        """As `messages`, with the payloads in `data`, see `AsyncClient.read`.

        Example: `for message in client.read("orders", start=100): handle(message.data)`
        """
        for extent in self._thread.iterate(self._client._extents(subject, start, limit, partition)):
            yield from extent

    def get(self, sequence: int, *, inline: bool = False) -> Message:
        """One message; an error `not_found` when there is none with this sequence."""
        return self._thread.run(self._client.get(sequence, inline=inline))

    def payload(self, message: Message | int) -> bytes:
        """A message's payload in memory, checked; for large ones use `download`."""
        return self._thread.run(self._client.payload(message))

    def download(
        self,
        message: Message | int,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        progress: ProgressCallback | None = None,
    ) -> Message:
        """Save a payload to a path or an open binary file, see `AsyncClient.download`.

        Example: `client.download(42, "film.mp4")`
        """
        return self._thread.run(self._client.download(message, target, progress=progress))

    def latest(self, subject: str) -> int:
        """The sequence of the subject's last message; 0 when it has none."""
        return self._thread.run(self._client.latest(subject))

    def reconcile(self) -> dict[str, object]:
        """Have the host look now for uploads whose notification was lost; returns its counters."""
        return self._thread.run(self._client.reconcile())
