"""The HTTP way: `minitoolstream.client` does the work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from minitoolstream.client import Client, Subscription
from minitoolstream.connector._types import Message, Prepared, PublishResult, SubscriptionStatus
from minitoolstream.connector._wires import Handle, Options, results_of
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.pb.names import CONTENT_TYPE, DATA_SIZE

log = logging.getLogger(__name__)


class HttpIngress:
    def __init__(self, address: str, options: Options, presigned_above: int) -> None:
        self._client = Client(address, options.token_for(address), retry_for=options.timeout)
        self._presigned_above = presigned_above

    def publish(self, message: Prepared) -> PublishResult:
        """Files go to the store whatever their size."""
        subject, headers, content_type = message.subject, message.headers, message.content_type
        if isinstance(message.data, Path):
            receipt = self._client.publish_file(subject, message.data, headers=headers, content_type=content_type)
        else:
            receipt = self._client.publish(
                subject, message.data, headers=headers, content_type=content_type, inline_limit=self._presigned_above
            )
        sequence = receipt.sequence or 0
        return PublishResult(sequence, self._name_of(sequence))

    def _name_of(self, sequence: int) -> str:
        """Empty when it cannot be asked for: the message is published all the same, and must not look as if not."""
        try:
            return self._client.get(sequence).object_name
        except MtsError as error:
            log.warning("message %d is published, but its object is not known: %s", sequence, error.message)
            return ""

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

    def follow(self, subject: str, durable: str, batch_size: int, handle: Handle, stop: Event) -> None:
        with self._client.subscribe(subject, durable=durable, ack="manual", prefetch=batch_size) as subscription:
            self._open.add(subscription)
            try:
                if not stop.is_set():  # else `wake` may have come too early for this one
                    _hand_over(subscription, subject, handle)
            finally:
                self._open.discard(subscription)

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


def _hand_over(subscription: Subscription, subject: str, handle: Handle) -> None:
    """Until it is stopped. What was handled is acked, also when the stop came meanwhile."""
    for delivery in subscription:
        headers = dict(delivery.headers)
        headers.setdefault(DATA_SIZE, str(delivery.message.size))
        if delivery.message.content_type != DEFAULT_CONTENT_TYPE:
            headers.setdefault(CONTENT_TYPE, delivery.message.content_type)
        if not handle(Message(delivery.sequence, subject, delivery.data(), headers, delivery.message.create_at)):
            return
        delivery.ack()
