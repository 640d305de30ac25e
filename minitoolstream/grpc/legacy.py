"""The older interface, package `minitoolstream`: its clients never ack, and fetch once each time they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

from google.protobuf.timestamp_pb2 import Timestamp

from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consumer import check_durable
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import Message
from minitoolstream.domain.transaction import PositionAck
from minitoolstream.grpc.calls import Context, metadata_of
from minitoolstream.grpc.egress import FRAMING, too_large
from minitoolstream.grpc.following import follow
from minitoolstream.grpc.ingress import Ingress
from minitoolstream.grpc.shapes import headers_for_reader, limit_in, subject_in
from minitoolstream.grpc.slots import Slots
from minitoolstream.grpc.turns import Turns
from minitoolstream.pb import ingress_v1_pb2 as v1
from minitoolstream.pb import legacy_pb2 as pb
from minitoolstream.services.acknowledge import acknowledge
from minitoolstream.services.bring_payloads import Brought, bring_payloads
from minitoolstream.services.core import Core
from minitoolstream.services.describe import latest_sequence
from minitoolstream.services.follow_durable import Nudges, ensure_durable, follow_durable

LARGE = "mts-large"
"""Metadata of a client that can download: `mts-large: download`."""
DOWNLOAD = "mts-download"
"""Header of a message that came without its payload: the sequence to download."""


class LegacyIngress:
    """The same messages on the wire as in v1."""

    def __init__(self, ingress: Ingress) -> None:
        self._ingress = ingress

    async def publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:
        sent = v1.PublishRequest(subject=request.subject, data=request.data, headers=request.headers)
        published = await self._ingress.publish(sent, context)
        return pb.PublishResponse(sequence=published.sequence, object_name=published.object_name)


class LegacyEgress:
    """`answers` are the places for what is held until its reader has taken it."""

    def __init__(self, core: Core, answers: Slots, turns: Turns) -> None:
        self._core = core
        self._room = int(core.settings["grpc.message_limit"]) - FRAMING
        self._few = int(core.settings["subscription.batch_size"])
        self._again = float(core.settings["subscription.check_interval"])
        self._answers = answers
        self._turns = turns
        self._nudges = Nudges()

    async def get_last_sequence(
        self, request: pb.GetLastSequenceRequest, _context: Context
    ) -> pb.GetLastSequenceResponse:
        return pb.GetLastSequenceResponse(last_sequence=await latest_sequence(self._core, subject_in(request.subject)))

    async def subscribe(self, request: pb.SubscribeRequest, _context: Context) -> AsyncIterator[pb.Notification]:
        subject, durable = subject_in(request.subject), _durable_in(request.durable_name)
        await ensure_durable(self._core, subject, durable, check_number(request.start_sequence, "start_sequence"))
        begin = partial(follow_durable, self._core, subject, durable, self._again, self._nudges)
        async with aclosing(follow(self._core, begin)) as news:
            async for latest in news:
                yield pb.Notification(subject=subject, sequence=latest)

    async def fetch(self, request: pb.FetchRequest, context: Context) -> AsyncIterator[pb.Message]:
        """One at a time of a durable: a second one would hand out the same messages."""
        subject, durable = subject_in(request.subject), _durable_in(request.durable_name)
        limit = limit_in(request.batch_size, self._few, "batch_size")
        can_download = metadata_of(context).get(LARGE) == "download"
        await ensure_durable(self._core, subject, durable)
        async with self._turns.turn(subject, durable), self._answers:
            found = await self._core.deliveries.read(subject, durable, limit)
            brought = await bring_payloads(self._core, found.page, self._room)
            large = brought.too_large
            if large is not None:
                if not can_download:
                    way = f"GET /v1/messages/{large.sequence} of the HTTP API gives a URL for it"
                    raise too_large(large, self._room, way)
                brought = Brought([], int(large.sequence) + 1)
                yield _message(large, b"", {DOWNLOAD: str(large.sequence)})
            for message, data in brought.messages:
                yield _message(message, data)
            if brought.messages or large is not None or brought.next_sequence - 1 > found.position:
                ack = PositionAck(brought.next_sequence - 1, None, found.fence)
                await acknowledge(self._core, subject, durable, ack)
                self._nudges.tell(subject, durable)


def _durable_in(name: str) -> str:
    if not name:
        raise bad_request("durable_name cannot be empty", field="durable_name")
    return check_durable(name)


def _message(message: Message, data: bytes | None, more: dict[str, str] | None = None) -> pb.Message:
    return pb.Message(
        subject=message.subject,
        sequence=int(message.sequence),
        data=data or b"",
        headers={**headers_for_reader(message, missing=data is None), **(more or {})},
        timestamp=Timestamp(seconds=message.create_at),
    )
