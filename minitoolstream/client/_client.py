"""The client for asyncio; the sync one runs this in a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from minitoolstream import config
from minitoolstream.client._catalog import AsyncCatalog
from minitoolstream.client._deletion import delete_message, deletions
from minitoolstream.client._deletion_types import Deletion, DeletionRecord
from minitoolstream.client._export import CountCallback, Export, Exported
from minitoolstream.client._import import Import, Imported, read_head
from minitoolstream.client._manage import AsyncConsumers, AsyncDeadLetters, AsyncSubjects
from minitoolstream.client._pipeline import AsyncPipeline
from minitoolstream.client._place import Place, place_of
from minitoolstream.client._publishing import AsyncPublishing
from minitoolstream.client._read import Reader
from minitoolstream.client._reading import AsyncReading
from minitoolstream.client._retention import AsyncRetention
from minitoolstream.client._retry import RetryPolicy
from minitoolstream.client._subscription import AsyncSubscription
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload_calls import UploadCalls
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.subject import check_subject
from minitoolstream.net.http1 import HttpClient

_MOST_SUBSCRIPTIONS = 1024
"""That wait at a host at once; further ones take turns."""


class AsyncClient(AsyncPublishing, AsyncReading):
    """Publish and read messages, from asyncio.

    `urls`: the address of a host, or several of which any that answers is used; `token`: the API's bearer
    token. Without them: what `mts up` left under `.mts/`, or MTS_URL and MTS_TOKEN. What may be repeated is
    repeated for up to `retry_for` seconds. `region`: where this is; payloads come from the nearest copy.
    Every failure is an `MtsError`.

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
        region: str | None = None,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls or ())
        if urls is None or token is None:
            settings = config.load_settings()
            addresses = list(settings["server.urls"]) if urls is None else addresses
            token = settings.token_for(addresses) if token is None else token
        if not addresses:
            raise MtsError(
                "not_configured",
                "no host is known here: no stack was started, and MTS_URL is not set",
                {"hint": "`mts up` starts a stack here; or set MTS_URL and MTS_TOKEN"},
            )
        waiting = HttpClient(pool_per_host=_MOST_SUBSCRIPTIONS)
        self._transport = Transport(
            HttpClient(), addresses, token or "", RetryPolicy(retry_for), waiting, region=region
        )
        self._reader = Reader(self._transport)
        self._uploads = UploadCalls(self._transport)
        self._state_dir = state_dir
        self._subscriptions: set[AsyncSubscription] = set()

    @classmethod
    def from_settings(cls, settings: config.Settings, *, retry_for: float = 30.0) -> AsyncClient:
        """A client for the host that settings name, which `minitoolstream.config.load_settings` reads.

        Example: `AsyncClient.from_settings(load_settings())`
        """
        urls = settings["server.urls"]
        return cls(urls, settings.token_for(urls) or "", retry_for=retry_for, region=settings["client.region"])

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close subscriptions and connections; what still needs them fails with the code `closed`."""
        for subscription in list(self._subscriptions):
            await subscription.close()
        await self._transport.close()

    @property
    def consumers(self) -> AsyncConsumers:
        """The durables of subjects: look, make, seek, delete."""
        return AsyncConsumers(self._transport)

    @property
    def subjects(self) -> AsyncSubjects:
        """Subjects: look, make, alter, purge, delete."""
        return AsyncSubjects(self._transport)

    @property
    def dead_letters(self) -> AsyncDeadLetters:
        """Messages that shared durables gave up on: look, replay, purge."""
        return AsyncDeadLetters(self._transport)

    @property
    def retention(self) -> AsyncRetention:
        """How long messages stay: look, configure, sweep; and the bucket's lifecycle."""
        return AsyncRetention(self._transport)

    @property
    def pipeline(self) -> AsyncPipeline:
        """The tracked pipeline: register files, claim and end tasks, see where they are."""
        return AsyncPipeline(self._transport)

    @property
    def catalog(self) -> AsyncCatalog:
        """The content catalog: pins, and where their copies are."""
        return AsyncCatalog(self._transport)

    async def export_subject(
        self, subject: str, target: str | os.PathLike[str] | Place, *, progress: CountCallback | None = None
    ) -> Exported:
        """Save all messages of a subject to a folder, in order, with headers, types, codecs, times and sequences;
        called again after an interruption, it goes on. docs/export.md describes the files.

        Example: `await client.export_subject("orders", "backup/orders")`
        """
        details = await self.subjects.get(subject)
        return await Export(self._transport, details, place_of(target), progress).run()

    async def import_subject(
        self,
        source: str | os.PathLike[str] | Place,
        subject: str | None = None,
        *,
        progress: CountCallback | None = None,
    ) -> Imported:
        """Publish what an export holds, in the same order, to `subject` (by default its own); called again after an
        interruption, nothing is stored twice. Sizes and checksums are checked.

        Example: `await client.import_subject("backup/orders", "orders-again")`
        """
        place = place_of(source)
        head = await read_head(place)
        target = check_subject(subject or head.subject)
        await self._make_like(target, head.partitions)
        return await Import(self._transport, place, head, target).run(progress)

    async def _make_like(self, subject: str, partitions: int) -> None:
        try:
            await self.subjects.get(subject)
        except MtsError as error:
            if error.code != "unknown_subject":
                raise
            await self.subjects.put(subject, partitions=partitions)

    async def delete_message(self, sequence: int, reason: str = "") -> Deletion:
        """Delete a message for good, with whatever shares its payload; `reason` goes on the record.

        Example: `await client.delete_message(42, "asked for by its owner")`
        """
        return await delete_message(self._transport, sequence, reason)

    async def deletions(self, *, after: str = "", limit: int = 100) -> list[DeletionRecord]:
        """The record of deletions, oldest first, behind the id `after`."""
        return await deletions(self._transport, after, limit)

    async def consistency(self) -> dict[str, object]:
        """The latest report of `mts fsck`; an error `not_found` when there is none."""
        return await self._transport.call("GET", "/v1/consistency", dict[str, object])

    async def reconcile(self) -> dict[str, object]:
        """Have the host look now for uploads whose notification was lost; returns its counters."""
        return await self._transport.call("POST", "/v1/reconcile", dict[str, object], timeout=120)
