"""The gRPC way of publishing: one call for what is small, the object store itself for what is not."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from minitoolstream.connector._channel import Channel, Metadata
from minitoolstream.connector._put import put
from minitoolstream.connector._types import Prepared, PublishResult
from minitoolstream.connector._wires import Options, results_of
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MIB
from minitoolstream.pb import ingress_v1_pb2 as pb
from minitoolstream.pb.names import CONTENT_TYPE, IDEMPOTENCY_KEY

_BATCH_BYTES = 3 * MIB
_BATCH_MESSAGES = 1000
_HASHED_AT_ONCE = 4 * MIB


class GrpcIngress:
    def __init__(self, address: str, options: Options, presigned_above: int) -> None:
        self._channel = Channel(address, options, pb.DESCRIPTOR.services_by_name["IngressService"])
        self._presigned_above = presigned_above
        self._timeout = options.timeout

    def publish(self, message: Prepared) -> PublishResult:
        """A call that is tried again carries the same key, so that the message is stored once."""
        try:
            if _size_of(message) > self._presigned_above:
                return self._upload(message)
            request = _request(message)
        except OSError as error:
            raise bad_request(f"cannot read {error.filename}: {error.strerror}", field="data") from None
        try:
            answer = self._channel.call(self._channel.stub.Publish, request, _new_key())
        except MtsError as error:
            if error.code != "too_large":  # for one call, which takes what its server says; nothing is stored
                raise
            return self._upload(message)
        return PublishResult(answer.sequence, answer.object_name)

    def publish_all(self, messages: Sequence[Prepared]) -> list[PublishResult]:
        """In order; neighbours that are small go together."""
        return results_of(outcome for group in self._groups(messages) for outcome in self._publish_group(group))

    def _groups(self, messages: Sequence[Prepared]) -> Iterator[list[Prepared]]:
        group: list[Prepared] = []
        size = 0
        for message in messages:
            own = _size_of(message)
            if group and (len(group) == _BATCH_MESSAGES or size + own > _BATCH_BYTES or own > self._presigned_above):
                yield group
                group, size = [], 0
            group.append(message)
            size += own
        if group:
            yield group

    def _publish_group(self, group: list[Prepared]) -> list[PublishResult | MtsError]:
        try:
            if len(group) == 1:
                return [self.publish(group[0])]
            request = pb.PublishBatchRequest(messages=map(_request, group))
            answer = self._channel.call(self._channel.stub.PublishBatch, request, _new_key())
        except MtsError as error:
            return [error] * len(group)
        except OSError:  # one of the files is gone: the others need not fail with it
            return [outcome for message in group for outcome in self._publish_group([message])]
        return [
            MtsError("bad_request" if result.status_code == 1 else "publish_failed", result.error_message)
            if result.status_code
            else PublishResult(result.sequence, result.object_name)
            for result in answer.results
        ]

    def _upload(self, message: Prepared) -> PublishResult:
        stub = self._channel.stub
        with _opened(message) as source:
            size = _size_of(message)
            upload = pb.Upload(subject=message.subject, size=size, headers=_headers(message), sha256=_sha256(source))
            ticket = self._channel.call(stub.IssueTicket, pb.IssueTicketRequest(upload=upload))
            position = 0
            while ticket.requests:
                for request in ticket.requests:
                    source.seek(position)
                    put(request, source.read(request.size), self._timeout)
                    position += request.size
                if not ticket.next_part:
                    break
                more = pb.IssueTicketRequest(upload_id=ticket.upload_id, from_part=ticket.next_part)
                ticket = self._channel.call(stub.IssueTicket, more)
        wanted = pb.GetReceiptRequest(upload_id=ticket.upload_id, complete=True)
        try:
            receipt = self._channel.call(stub.GetReceipt, wanted).receipt
        except MtsError as error:  # it is stored, and may be published by now: its receipt can be asked for later
            raise MtsError(error.code, error.message, {**error.details, "upload_id": ticket.upload_id}) from None
        if receipt.state != "committed":
            raise MtsError("upload_rejected", f"the upload was {receipt.state}: {receipt.reason}")
        return PublishResult(receipt.sequence, ticket.object_name)

    def close(self) -> None:
        self._channel.close()


def _new_key() -> Metadata:
    return ((IDEMPOTENCY_KEY, uuid.uuid4().hex),)


def _size_of(message: Prepared) -> int:
    """0 for a file that is gone, which is said when it is read."""
    if not isinstance(message.data, Path):
        return len(message.data)
    return message.data.stat().st_size if message.data.exists() else 0


def _headers(message: Prepared) -> dict[str, str]:
    typed = {CONTENT_TYPE: message.content_type} if message.content_type else {}
    return {**message.headers, **typed}


def _request(message: Prepared) -> pb.PublishRequest:
    data = message.data.read_bytes() if isinstance(message.data, Path) else message.data
    return pb.PublishRequest(subject=message.subject, data=data, headers=_headers(message))


def _opened(message: Prepared) -> BinaryIO:
    return message.data.open("rb") if isinstance(message.data, Path) else BytesIO(message.data)


def _sha256(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_HASHED_AT_ONCE):
        digest.update(piece)
    return digest.hexdigest()
