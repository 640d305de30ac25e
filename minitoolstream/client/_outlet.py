"""Where the messages of a buffered publisher go: their subject, their numbers, the call that sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minitoolstream.client._batch import Frame, publish_frames, to_frame
from minitoolstream.client._producers import start_producer
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Item, Result
from minitoolstream.domain.subject import check_subject
from minitoolstream.domain.subject_settings import check_codec


class Outlet:
    """A named producer's messages get its epoch and rising seqnos."""

    def __init__(
        self,
        transport: Transport,
        subject: str,
        *,
        content_type: str | None,
        headers: Mapping[str, str] | None,
        producer_id: str | None,
        codec: str | None,
    ) -> None:
        self._transport = transport
        self._subject = check_subject(subject)
        self._content_type = content_type
        self._headers = dict(headers or {})
        self._producer_id = producer_id
        self._codec = check_codec(codec)
        self._epoch: int | None = None
        self._next = 0

    async def start(self) -> None:
        if self._producer_id is not None:
            session = await start_producer(self._transport, self._subject, self._producer_id)
            self._epoch, self._next = session.epoch, session.last_seqno + 1

    def frame(
        self, data: bytes | str, content_type: str | None, headers: Mapping[str, str] | None, group: str | None
    ) -> Frame:
        return to_frame(
            Item(
                data,
                content_type or self._content_type,
                {**self._headers, **(headers or {})},
                self._producer_id,
                self._next if self._producer_id is not None else None,
                self._epoch,
                group,
                self._codec,
            )
        )

    def taken(self) -> None:
        """The last frame has its place in the buffer: the next one gets the next seqno."""
        self._next += 1

    async def send(self, frames: Sequence[Frame]) -> list[Result]:
        return await publish_frames(self._transport, self._subject, frames)
