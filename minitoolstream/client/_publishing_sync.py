"""The publishing half of the client for ordinary code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minitoolstream.client._buffer import BufferLimits
from minitoolstream.client._buffered_sync import BufferedPublisher
from minitoolstream.client._client import AsyncClient
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._transaction_sync import Transaction
from minitoolstream.client._types import ProducerSession, Result
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.upload import Receipt


class Publishing:
    """Part of `Client`."""

    _client: AsyncClient
    _thread: LoopThread

    @same_arguments(AsyncClient.publish)
    def publish(self, *args: Any, **options: Any) -> Receipt:
        """Publish a payload from memory, see `AsyncClient.publish`.

        Example: `client.publish("orders", '{"id": 7}', content_type="application/json").sequence`
        """
        return self._thread.run(self._client.publish(*args, **options))

    @same_arguments(AsyncClient.publish_file)
    def publish_file(self, *args: Any, **options: Any) -> Receipt:
        """Publish a file of any size; the same call goes on after an interruption, see `AsyncClient.publish_file`.

        Example: `client.publish_file("videos", "film.mp4")`
        """
        return self._thread.run(self._client.publish_file(*args, **options))

    @same_arguments(AsyncClient.publish_batch)
    def publish_batch(self, *args: Any, **options: Any) -> list[Result]:
        """Publish many messages in few calls, see `AsyncClient.publish_batch`.

        Example: `results = client.publish_batch("orders", [b"one", Item(b"two", headers={"n": "2"})])`
        """
        return self._thread.run(self._client.publish_batch(*args, **options))

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
    ) -> BufferedPublisher:
        """A publisher that sends small messages together; see `BufferedPublisher`.

        At most `max_bytes` (8 batches unless given) wait in memory. With `producer_id` it starts a producer
        session and numbers the messages, so that retries store each exactly once.
        """
        limits = BufferLimits(linger, batch_bytes, max_bytes or 8 * batch_bytes)
        outlet = self._client._outlet(subject, content_type, headers, producer_id, codec)
        return BufferedPublisher(self._thread, outlet, limits)

    def start_producer(
        self, subject: str, producer_id: str, *, headers: Mapping[str, str] | None = None
    ) -> ProducerSession:
        """A new session of a named producer, see `AsyncClient.start_producer`."""
        return self._thread.run(self._client.start_producer(subject, producer_id, headers=headers))

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Publishes and acks that become visible together, or not at all; see `Transaction`."""
        return Transaction(self._thread, self._client.transaction(timeout=timeout))

    def receipt(self, upload_id: str, *, wait: float = 0) -> Receipt:
        """What became of an upload; waits up to `wait` (at most 25) seconds for its commit."""
        return self._thread.run(self._client.receipt(upload_id, wait=wait))

    def complete(self, upload_id: str) -> Receipt:
        """Finish an upload whose payload is in the store; the same answer however often it is called."""
        return self._thread.run(self._client.complete(upload_id))

    def abort(self, upload_id: str) -> Receipt:
        """Give an upload up; an error `upload_final` when it is committed already."""
        return self._thread.run(self._client.abort(upload_id))
