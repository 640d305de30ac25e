"""`minitoolstream.v1.IngressService`: the use cases of publishing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from minitoolstream.api.errors import answer_code, http_status
from minitoolstream.domain.checks import check_idempotency_key
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_WAIT_SECONDS
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.domain.subject import check_upload_id
from minitoolstream.domain.upload import Receipt
from minitoolstream.grpc.calls import SILENCE, Context, metadata_of
from minitoolstream.grpc.shapes import inline_message, upload_spec, v1_parts, v1_receipt, v1_ticket
from minitoolstream.grpc.slots import Slots
from minitoolstream.pb import ingress_v1_pb2 as pb
from minitoolstream.pb.names import IDEMPOTENCY_KEY
from minitoolstream.ports import PackResult
from minitoolstream.services.core import Core
from minitoolstream.services.end_upload import complete_upload
from minitoolstream.services.get_receipt import get_receipt
from minitoolstream.services.issue_tickets import issue_tickets
from minitoolstream.services.publish_inline import publish_inline
from minitoolstream.services.publish_stream import publish_stream
from minitoolstream.services.upload_parts import sign_missing_parts

STREAMS_AT_ONCE = 8  # each holds two parts of its payload


class Ingress:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._most = int(core.settings["server.inline_limit"])
        self._streams = Slots(STREAMS_AT_ONCE, "uploads")

    async def publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:
        return await self._publish(request, metadata_of(context).get(IDEMPOTENCY_KEY))

    async def _publish(self, request: pb.PublishRequest, key: str | None) -> pb.PublishResponse:
        message = self._message(request)
        if key is not None:
            message.key = check_idempotency_key(key)
        return await self._published(await publish_inline(self._core, message))

    async def publish_batch(self, request: pb.PublishBatchRequest, context: Context) -> pb.PublishBatchResponse:
        """All go to the packer, which puts those together that may be, and splits what is too much for one pack."""
        if len(request.messages) > MAX_MESSAGES_PER_PACK:
            raise bad_request(f"a batch has at most {MAX_MESSAGES_PER_PACK} messages", field="messages")
        key = metadata_of(context).get(IDEMPOTENCY_KEY)
        results = await asyncio.gather(
            *(
                self._of_batch(message, None if key is None else f"{key}/{index}")
                for index, message in enumerate(request.messages)
            )
        )
        published = sum(isinstance(result, pb.PublishResponse) for result in results)
        away = next((result for result in results if isinstance(result, MtsError) and result.retryable), None)
        if away is not None and (key is not None or not published):
            raise away  # the same batch may be sent again: what is stored is not stored twice, or nothing is
        return pb.PublishBatchResponse(
            results=map(_told, results),
            total_count=len(results),
            success_count=published,
            error_count=len(results) - published,
        )

    async def _of_batch(self, request: pb.PublishRequest, key: str | None) -> pb.PublishResponse | MtsError:
        try:
            return await self._publish(request, key)
        except MtsError as error:
            return error

    def _message(self, request: pb.PublishRequest) -> InlineMessage:
        return inline_message(request.subject, request.data, request.headers, self._most)

    async def _published(self, result: PackResult) -> pb.PublishResponse:
        receipt = result.receipt
        if receipt is None:
            assert result.error is not None
            raise result.error
        sequence = receipt.sequence or 0
        return pb.PublishResponse(sequence=sequence, object_name=await self._name(sequence, result.object_name))

    async def _name(self, sequence: int, known: str) -> str:
        """Of the object that holds a message; one that was stored before is looked up, and may have expired."""
        if known:
            return known
        extent = await self._core.metadata.get_message(sequence)
        return "" if extent is None else extent.object_name

    async def publish_stream(
        self, requests: AsyncIterator[pb.PublishStreamRequest], _context: Context
    ) -> pb.PublishStreamResponse:
        pieces = _Pieces(requests)
        first = await pieces.next()
        if first is None or first.WhichOneof("piece") != "upload":
            raise bad_request("a stream begins with its `upload`", field="upload")
        subject, spec = upload_spec(first.upload)
        del first  # it may be large all the same, by fields that nobody knows
        async with self._streams:
            receipt, name = await publish_stream(self._core, subject, spec, pieces.data())
        if receipt.sequence is None and receipt.upload_id is not None:
            receipt = await get_receipt(self._core, receipt.upload_id, MAX_WAIT_SECONDS)
        if receipt.sequence is None:
            why = receipt.reason or "it waits for an earlier seqno"
            raise MtsError("upload_conflict", f"the payload is {receipt.state}: {why}", {"state": receipt.state})
        name = await self._name(receipt.sequence, name)
        return pb.PublishStreamResponse(sequence=receipt.sequence, object_name=name)

    async def issue_ticket(self, request: pb.IssueTicketRequest, _context: Context) -> pb.IssueTicketResponse:
        wanted = request.WhichOneof("wanted")
        if wanted == "upload_id":
            upload_id = check_upload_id(request.upload_id)
            return v1_parts(await sign_missing_parts(self._core, upload_id, request.from_part or 1))
        if wanted is None:
            raise bad_request("say which `upload` shall come, or which `upload_id` shall be signed", field="upload")
        subject, spec = upload_spec(request.upload)
        (issued,) = await issue_tickets(self._core, subject, [spec])
        if isinstance(issued, Receipt):
            return pb.IssueTicketResponse(receipt=v1_receipt(issued))
        return v1_ticket(issued)

    async def get_receipt(self, request: pb.GetReceiptRequest, _context: Context) -> pb.GetReceiptResponse:
        upload_id = check_upload_id(request.upload_id)
        if not request.wait_seconds >= 0:
            raise bad_request("wait_seconds must not be negative", field="wait_seconds")
        if request.complete:
            receipt = await complete_upload(self._core, upload_id)
        else:
            receipt = await get_receipt(self._core, upload_id, request.wait_seconds)
        return pb.GetReceiptResponse(receipt=v1_receipt(receipt))


def _told(result: pb.PublishResponse | MtsError) -> pb.PublishResponse:
    if isinstance(result, pb.PublishResponse):
        return result
    return pb.PublishResponse(status_code=answer_code(result) or http_status(result), error_message=result.message)


class _Pieces:
    """A client's stream; one that says nothing for long has gone."""

    def __init__(self, requests: AsyncIterator[pb.PublishStreamRequest]) -> None:
        self._requests = requests

    async def next(self) -> pb.PublishStreamRequest | None:
        try:
            async with asyncio.timeout(SILENCE):
                return await anext(self._requests, None)
        except TimeoutError:
            raise MtsError("request_timeout", f"nothing came for {SILENCE:g} s") from None

    async def data(self) -> AsyncIterator[bytes]:
        while (piece := await self.next()) is not None:
            if piece.WhichOneof("piece") == "upload":
                raise bad_request("a stream has one `upload`, its first message", field="upload")
            yield piece.data
