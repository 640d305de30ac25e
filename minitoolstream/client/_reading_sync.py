"""The reading half of the client for ordinary code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from minitoolstream.client._client import AsyncClient
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._subscriber import Subscriber
from minitoolstream.client._subscribing import Subscribing
from minitoolstream.client._subscription_sync import Subscription
from minitoolstream.client._types import Message, Page, Start
from minitoolstream.domain.errors import MtsError


class Reading:
    """Part of `Client`."""

    _client: AsyncClient
    _thread: LoopThread
    _subscriptions: set[Subscription]

    @same_arguments(AsyncClient.fetch)
    def fetch(self, *args: Any, **options: Any) -> Page:
        """A page of messages from `start` on, see `AsyncClient.fetch`.

        Example: `page = client.fetch("orders", start="first", limit=10)`
        """
        return self._thread.run(self._client.fetch(*args, **options))

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

    @same_arguments(AsyncClient.subscribe)
    def subscribe(self, subject: str, **options: Any) -> Subscription:
        """Messages as they come, see `Subscription`; the arguments are those of `AsyncClient.subscribe`.

        Example: `for delivery in client.subscribe("orders", durable="billing"): handle(delivery.data())`
        """
        wanted = Subscribing(subject=subject, **options)

        def call_soon(function: Callable[[], object]) -> None:
            with contextlib.suppress(MtsError):  # the client is being closed
                self._thread.call_soon(function)

        subscription = Subscription(
            self._thread,
            wanted.intake(self._client._reader, call_soon),
            auto=wanted.auto,
            ordered=wanted.ordered,
            closed=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    def subscriber(self) -> Subscriber:
        """Handlers for subjects, run together until a signal; see `Subscriber`."""
        return Subscriber(self.subscribe)

    def get(self, sequence: int, *, inline: bool = False) -> Message:
        """One message; an error `not_found` when there is none with this sequence."""
        return self._thread.run(self._client.get(sequence, inline=inline))

    def payload(self, message: Message | int) -> bytes:
        """A message's payload in memory, checked; for large ones use `download`."""
        return self._thread.run(self._client.payload(message))

    @same_arguments(AsyncClient.download)
    def download(self, *args: Any, **options: Any) -> Message:
        """Save a payload to a path or an open binary file, see `AsyncClient.download`.

        Example: `client.download(42, "film.mp4")`
        """
        return self._thread.run(self._client.download(*args, **options))

    def latest(self, subject: str) -> int:
        """The sequence of the subject's last message; 0 when it has none."""
        return self._thread.run(self._client.latest(subject))

    def server_time(self, subject: str) -> datetime:
        """The time where the subject's messages get their `create_at`, to the second: this machine's may differ."""
        return self._thread.run(self._client.server_time(subject))
