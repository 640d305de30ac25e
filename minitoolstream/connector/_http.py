"""The HTTP way: `minitoolstream.client` does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from minitoolstream.client import Client, Subscription
from minitoolstream.connector._types import Message, Prepared, PublishResult, SubscriptionStatus
from minitoolstream.connector._wires import Options, results_of
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.pb.names import CONTENT_TYPE, DATA_SIZE


class HttpIngress:
    def __init__(self, address: str, options: Options) -> None:
        self._client = Client(address, options.token_for(address), retry_for=options.timeout)

    def publish(self, message: Prepared) -> PublishResult:
        """The client itself goes to the store above a size."""
        about = {"headers": message.headers, "content_type": message.content_type}
        if isinstance(message.data, Path):
            receipt = self._client.publish_file(message.subject, message.data, **about)  # type: ignore[arg-type]
        else:
            receipt = self._client.publish(message.subject, message.data, **about)  # type: ignore[arg-type]
        sequence = receipt.sequence or 0
        return PublishResult(sequence, self._client.get(sequence).object_name)

    def publish_all(self, messages: Sequence[Prepared]) -> list[PublishResult]:
        return results_of(map(self._tried, messages))

    def _tried(self, message: Prepared) -> PublishResult | MtsError:
        try:
            return self.publish(message)
        except MtsError as error:
            return error

    def close(self) -> None:
        self._client.close()


class HttpEgress:
    def __init__(self, address: str, options: Options) -> None:
        self._client = Client(address, options.token_for(address), retry_for=options.timeout)
        self._open: set[Subscription] = set()

    def follow(
        self, subject: str, durable: str, batch_size: int, handle: Callable[[Message], None], stop: Event
    ) -> None:
        with self._client.subscribe(subject, durable=durable, ack="manual", prefetch=batch_size) as subscription:
            self._open.add(subscription)
            for delivery in subscription:
                headers = dict(delivery.headers)
                headers.setdefault(DATA_SIZE, str(delivery.message.size))
                if delivery.message.content_type != DEFAULT_CONTENT_TYPE:
                    headers.setdefault(CONTENT_TYPE, delivery.message.content_type)
                handle(Message(delivery.sequence, subject, delivery.data(), headers, delivery.message.create_at))
                if stop.is_set():
                    return
                delivery.ack()

    def wake(self) -> None:
        for subscription in list(self._open):
            subscription.stop()

    def status(self, subject: str, durable: str) -> SubscriptionStatus:
        try:
            known = self._client.consumers.get(subject, durable)
        except MtsError as error:
            if error.code == "unknown_subject":
                return SubscriptionStatus(subject, 0, 0, 0)
            if error.code != "unknown_durable":
                raise
            all_of_it = self._client.subjects.get(subject)
            return SubscriptionStatus(subject, 0, all_of_it.latest_sequence, all_of_it.messages)
        return SubscriptionStatus(subject, known.last_sequence, known.latest_sequence, known.lag)

    def close(self) -> None:
        self._client.close()
