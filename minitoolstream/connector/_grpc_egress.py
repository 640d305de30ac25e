"""The gRPC way of reading: a subscription tells that there is something, fetches bring it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

import grpc

from minitoolstream.client._codec import decode_now
from minitoolstream.connector._channel import Channel, error_of
from minitoolstream.connector._types import Message, SubscriptionStatus
from minitoolstream.connector._wires import Handle, Options
from minitoolstream.domain.errors import MtsError
from minitoolstream.pb import egress_v1_pb2 as pb
from minitoolstream.pb.names import CODEC

_GOES_BY = frozenset({"unavailable", "timeout", "closed", "overloaded", "internal"})
log = logging.getLogger(__name__)


class GrpcEgress:
    def __init__(self, address: str, options: Options, pause: float) -> None:
        self._channel = Channel(address, options, pb.DESCRIPTOR.services_by_name["EgressService"])
        self._pause = pause
        self._streams: set[Any] = set()
        self._lock = Lock()

    def follow(self, subject: str, durable: str, batch_size: int, handle: Handle, stop: Event) -> None:
        reading = _Reading(self._channel, (subject, durable), batch_size, handle, stop)
        while not stop.is_set():
            try:
                reading.find_position()
                with self._kept(reading.subscribe()) as stream:
                    if not stop.is_set():
                        reading.run(stream)
            except (grpc.RpcError, MtsError) as failure:
                error = error_of(failure) if isinstance(failure, grpc.RpcError) else failure
                if error.code not in _GOES_BY:
                    raise error from None
                if not stop.is_set():
                    log.warning("reading %s is interrupted: %s", subject, error.message)
            stop.wait(self._pause)

    @contextmanager
    def _kept(self, stream: Any) -> Iterator[Any]:
        """A stream that `wake` can end, for as long as it is read."""
        with self._lock:
            self._streams.add(stream)
        try:
            yield stream
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.cancel()

    def wake(self) -> None:
        with self._lock:
            waiting = list(self._streams)
        for stream in waiting:
            stream.cancel()

    def status(self, subject: str, durable: str) -> SubscriptionStatus:
        asked = pb.GetConsumerPositionRequest(durable_name=durable, subject=subject)
        try:
            known = self._channel.call(self._channel.stub.GetConsumerPosition, asked)
        except MtsError as error:
            if error.code not in {"unknown_durable", "unknown_subject"}:
                raise
            known = error.details["answer"]
        return SubscriptionStatus(subject, known.last_sequence, known.latest_sequence, known.messages_lag)

    def close(self) -> None:
        self._channel.close()


class _Reading:
    """One subject from a durable's position on. What was handled is acked after each batch."""

    def __init__(
        self, channel: Channel, durable: tuple[str, str], batch_size: int, handle: Handle, stop: Event
    ) -> None:
        self._channel = channel
        self._subject, self._durable = durable
        self._batch_size = batch_size
        self._handle = handle
        self._stop = stop
        self._position = 0

    def find_position(self) -> None:
        """One that does not exist yet stands at 0, and is made by the first ack."""
        asked = pb.GetConsumerPositionRequest(durable_name=self._durable, subject=self._subject)
        try:
            self._position = self._channel.call(self._channel.stub.GetConsumerPosition, asked).last_sequence
        except MtsError as error:
            if error.code not in {"unknown_durable", "unknown_subject"}:
                raise
            self._position = 0

    def subscribe(self) -> Any:
        request = pb.SubscribeRequest(
            subject=self._subject,
            durable_name=self._durable,
            start_sequence=self._position + 1,
            batch_size=self._batch_size,
        )
        return self._channel.stub.Subscribe(request, metadata=self._channel.metadata)

    def run(self, stream: Iterable[pb.SubscribeResponse]) -> None:
        for response in stream:
            kind = response.WhichOneof("response_type")
            if kind == "error":
                raise MtsError("bad_request", response.error.message)
            messages = list(response.batch.messages) if kind == "batch" else self._fetch()
            while messages and self._take(messages):
                messages = self._fetch()
            if self._stop.is_set():
                return

    def _take(self, messages: Iterable[pb.Message]) -> bool:
        """False when it was stopped. What was handled is acked, also when the stop came meanwhile."""
        before = self._position
        try:
            for message in messages:
                if not self._handle(_message(message)):
                    return False
                self._position = message.sequence
            return not self._stop.is_set()
        finally:
            if self._position > before:
                self._ack()

    def _ack(self) -> None:
        done = pb.UpdateConsumerPositionRequest(
            durable_name=self._durable, subject=self._subject, last_sequence=self._position
        )
        self._channel.call(self._channel.stub.UpdateConsumerPosition, done)

    def _fetch(self) -> list[pb.Message]:
        request = pb.FetchRequest(subject=self._subject, start_sequence=self._position + 1, limit=self._batch_size)
        try:
            return list(self._channel.call(self._channel.stub.Fetch, request).messages)
        except MtsError as error:
            if error.code != "too_large" or "sequence" not in error.details:
                raise
            return [self._downloaded(error.details["sequence"])]

    def _downloaded(self, sequence: int) -> pb.Message:
        """A message that no answer holds."""
        answers: Iterator[pb.DownloadResponse] = self._channel.stub.Download(
            pb.DownloadRequest(sequence=sequence), metadata=self._channel.metadata
        )
        message, pieces = pb.Message(), []
        for answer in answers:
            kind = answer.WhichOneof("piece")
            if kind == "error":
                raise MtsError("payload_missing", answer.error.message)
            if kind == "info":
                message.CopyFrom(answer.info.message)
            else:
                pieces.append(answer.data)
        message.data = b"".join(pieces)
        return message


def _message(message: pb.Message) -> Message:
    headers = dict(message.headers)
    data = decode_now(message.data, headers.pop(CODEC, None), message.sequence)
    return Message(message.sequence, message.subject, data, headers, message.create_at)
