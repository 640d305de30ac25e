"""`minitoolstream.v1.EgressService`: the use cases of reading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

from minitoolstream.api.errors import answer_code
from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consumer import ConsumerSettings, check_durable
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MAX_FETCH_LIMIT
from minitoolstream.domain.message import Message
from minitoolstream.grpc.calls import Context
from minitoolstream.grpc.following import follow
from minitoolstream.grpc.shapes import add_messages, limit_in, subject_in, v1_message
from minitoolstream.grpc.slots import Slots
from minitoolstream.pb import egress_v1_pb2 as pb
from minitoolstream.pb.names import ERROR_CODE
from minitoolstream.services.bring_payloads import Brought, bring_payloads, open_download, read_pieces
from minitoolstream.services.core import Core
from minitoolstream.services.describe import latest_sequence
from minitoolstream.services.fetch_messages import Selection
from minitoolstream.services.manage_consumers import get_consumer, put_consumer
from minitoolstream.services.manage_subjects import get_subject
from minitoolstream.services.read_messages import place_of
from minitoolstream.services.wait_for_messages import follow_messages

ANSWERS_AT_ONCE = 32
DOWNLOADS_AT_ONCE = 64  # each holds two pieces
FRAMING = KIB  # what an answer needs beside its messages
_PAUSE = 60.0


class Egress:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._room = int(core.settings["grpc.message_limit"]) - FRAMING
        self._few = int(core.settings["subscription.batch_size"])
        self.answers = Slots(ANSWERS_AT_ONCE, "reads")
        self._downloads = Slots(DOWNLOADS_AT_ONCE, "downloads")

    async def get_latest_sequence(
        self, request: pb.GetLatestSequenceRequest, _context: Context
    ) -> pb.GetLatestSequenceResponse:
        subject = subject_in(request.subject)
        return pb.GetLatestSequenceResponse(latest_sequence=await latest_sequence(self._core, subject))

    async def fetch(self, request: pb.FetchRequest, context: Context) -> pb.FetchResponse:
        subject, limit = subject_in(request.subject), limit_in(request.limit, self._few)
        await self.answers.for_the_call(context)
        brought = await self._bring(subject, check_number(request.start_sequence, "start_sequence"), limit)
        if brought.too_large is not None:
            raise too_large(brought.too_large, self._room, "read it with Download")
        answer = pb.FetchResponse()
        add_messages(answer.messages, brought)
        return answer

    async def _bring(self, subject: str, start: int, limit: int) -> Brought:
        page = await self._core.metadata.get_messages(subject, start, limit)
        return await bring_payloads(self._core, page, self._room)

    async def subscribe(self, request: pb.SubscribeRequest, _context: Context) -> AsyncIterator[pb.SubscribeResponse]:
        subject, limit = subject_in(request.subject), limit_in(request.batch_size, self._few, "batch_size")
        start = await self._start(subject, request.durable_name, check_number(request.start_sequence, "start_sequence"))
        async with self.answers:
            brought = await self._bring(subject, start, limit)
            following = brought.next_sequence
            first = pb.SubscribeResponse()
            first.batch.SetInParent()  # also when it is empty
            add_messages(first.batch.messages, brought)
            yield first
            del brought, first
        place = await place_of(self._core, Selection(subject, MAX_FETCH_LIMIT, whole=True), None, following)
        begin = partial(follow_messages, self._core, place, _PAUSE)
        async with aclosing(follow(self._core, begin)) as readings:
            async for reading in readings:
                if reading is not None:
                    news = pb.Notification(
                        latest_sequence=reading.page.latest_sequence, new_messages_count=reading.page.count
                    )
                    yield pb.SubscribeResponse(notification=news)

    async def _start(self, subject: str, durable: str, start: int) -> int:
        """Where to begin: one that nobody has made yet stands before the first message."""
        if not durable:
            return start
        durable = check_durable(durable)
        try:
            consumer = await get_consumer(self._core, subject, durable)
        except MtsError as error:
            if error.code not in {"unknown_durable", "unknown_subject"}:
                raise
            return start
        if consumer.mode != "ordered":
            raise MtsError("mode_mismatch", "a shared durable is read by leases: POST .../lease")
        return start or consumer.last_sequence + 1

    async def update_consumer_position(
        self, request: pb.UpdateConsumerPositionRequest, _context: Context
    ) -> pb.UpdateConsumerPositionResponse:
        subject, durable = subject_in(request.subject), check_durable(request.durable_name)
        position = check_number(request.last_sequence, "last_sequence")
        await put_consumer(self._core, subject, durable, ConsumerSettings(), start=1, ack=position)
        return pb.UpdateConsumerPositionResponse()

    async def get_consumer_position(
        self, request: pb.GetConsumerPositionRequest, context: Context
    ) -> pb.GetConsumerPositionResponse:
        subject, durable = subject_in(request.subject), check_durable(request.durable_name)
        try:
            consumer = await get_consumer(self._core, subject, durable)
        except MtsError as error:
            if error.code != "unknown_durable":
                raise
            # It has everything before it: who asks is about to read as this durable.
            known = await get_subject(self._core, subject)
            context.set_trailing_metadata(((ERROR_CODE, error.code),))
            return pb.GetConsumerPositionResponse(
                latest_sequence=int(known.latest_sequence),
                messages_lag=known.messages,
                status_code=answer_code(error),
                error_message=error.message,
            )
        return pb.GetConsumerPositionResponse(
            last_sequence=consumer.last_sequence,
            latest_sequence=consumer.latest_sequence,
            messages_lag=consumer.lag,
        )

    async def download(self, request: pb.DownloadRequest, _context: Context) -> AsyncIterator[pb.DownloadResponse]:
        sequence, offset = check_number(request.sequence, "sequence"), check_number(request.offset, "offset")
        length = check_number(request.length, "length") or None
        async with self._downloads:
            download = await open_download(self._core, sequence, offset, length)
            message = download.message
            info = pb.DownloadInfo(message=v1_message(message, b""), size=message.size, sha256=message.sha256 or "")
            yield pb.DownloadResponse(info=info)
            async with aclosing(read_pieces(self._core, download)) as pieces:
                async for piece in pieces:
                    yield pb.DownloadResponse(data=piece)


def too_large(message: Message, room: int, way: str) -> MtsError:
    """For a message that no answer holds."""
    return MtsError(
        "too_large",
        f"message {message.sequence} with its {message.size} bytes is more than the {room} of an answer: {way}",
        {"sequence": message.sequence, "size": message.size},
    )
