"""The client for ordinary code: the same methods as AsyncClient, each waits for its result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from minitoolstream.client._catalog import Catalog
from minitoolstream.client._client import AsyncClient
from minitoolstream.client._deletion_types import Deletion, DeletionRecord
from minitoolstream.client._export import CountCallback, Exported
from minitoolstream.client._import import Imported
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._manage_sync import Consumers, DeadLetters, Subjects
from minitoolstream.client._pipeline import Pipeline
from minitoolstream.client._place import Place
from minitoolstream.client._publishing_sync import Publishing
from minitoolstream.client._reading_sync import Reading
from minitoolstream.client._retention import SyncRetention
from minitoolstream.client._subscription_sync import Subscription
from minitoolstream.config import Settings


class Client(Publishing, Reading):
    """Publish and read messages. May be shared between threads.

    Arguments as those of `AsyncClient`; without any, it finds the stack that `mts up` started here, or takes
    MTS_URL and MTS_TOKEN. Every failure is an `MtsError`. `progress` functions are called in the client's own thread:
    they cannot call it.

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
        region: str | None = None,
    ) -> None:
        self._client = AsyncClient(urls, token, retry_for=retry_for, state_dir=state_dir, region=region)
        self._thread = LoopThread()
        self._subscriptions: set[Subscription] = set()

    @classmethod
    def from_settings(cls, settings: Settings, *, retry_for: float = 30.0) -> Client:
        """A client for the host that settings name, which `minitoolstream.config.load_settings` reads.

        Example: `Client.from_settings(load_settings())`
        """
        urls = settings["server.urls"]
        return cls(urls, settings.token_for(urls) or "", retry_for=retry_for, region=settings["client.region"])

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close subscriptions; stop what still runs, which then fails with the code `closed`; close the connections.

        Idempotent.
        """
        for subscription in list(self._subscriptions):
            subscription.close()
        self._thread.close(self._client.close)

    @property
    def consumers(self) -> Consumers:
        """The durables of subjects: look, make, seek, delete."""
        return Consumers(self._thread, self._client.consumers)

    @property
    def subjects(self) -> Subjects:
        """Subjects: look, make, alter, purge, delete."""
        return Subjects(self._thread, self._client.subjects)

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that shared durables gave up on: look, replay, purge."""
        return DeadLetters(self._thread, self._client.dead_letters)

    @property
    def retention(self) -> SyncRetention:
        """How long messages stay: look, configure, sweep; and the bucket's lifecycle."""
        return SyncRetention(self._thread, self._client.retention)

    @property
    def pipeline(self) -> Pipeline:
        """The tracked pipeline: register files, claim and end tasks, see where they are."""
        return Pipeline(self._thread, self._client.pipeline)

    @property
    def catalog(self) -> Catalog:
        """The content catalog: pins, and where their copies are."""
        return Catalog(self._thread, self._client.catalog)

    def export_subject(
        self, subject: str, target: str | os.PathLike[str] | Place, *, progress: CountCallback | None = None
    ) -> Exported:
        """Save all messages of a subject to a folder, see `AsyncClient.export_subject`.

        Example: `client.export_subject("orders", "backup/orders")`
        """
        return self._thread.run(self._client.export_subject(subject, target, progress=progress))

    def import_subject(
        self,
        source: str | os.PathLike[str] | Place,
        subject: str | None = None,
        *,
        progress: CountCallback | None = None,
    ) -> Imported:
        """Publish what an export holds, see `AsyncClient.import_subject`.

        Example: `client.import_subject("backup/orders", "orders-again")`
        """
        return self._thread.run(self._client.import_subject(source, subject, progress=progress))

    def delete_message(self, sequence: int, reason: str = "") -> Deletion:
        """Delete a message for good, with whatever shares its payload; `reason` goes on the record.

        Example: `client.delete_message(42, "asked for by its owner")`
        """
        return self._thread.run(self._client.delete_message(sequence, reason))

    def deletions(self, *, after: str = "", limit: int = 100) -> list[DeletionRecord]:
        """The record of deletions, oldest first, behind the id `after`."""
        return self._thread.run(self._client.deletions(after=after, limit=limit))

    def consistency(self) -> dict[str, object]:
        """The latest report of `mts fsck`; an error `not_found` when there is none."""
        return self._thread.run(self._client.consistency())

    def reconcile(self) -> dict[str, object]:
        """Have the host look now for uploads whose notification was lost; returns its counters."""
        return self._thread.run(self._client.reconcile())
