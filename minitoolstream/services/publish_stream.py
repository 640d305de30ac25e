"""A payload that comes through us piece by piece: into the store as an upload, never all of it in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.upload import Receipt, Upload, UploadSpec
from minitoolstream.services.core import Core
from minitoolstream.services.end_upload import abort_upload, complete_upload
from minitoolstream.services.issue_tickets import issue_tickets
from minitoolstream.services.put_once import put_once


@dataclass(slots=True)
class _Intake:
    """The bytes of an upload as they come: counted, hashed, gathered into parts. One part is on its way to the store
    while the next is gathered, in two buffers that are used in turn."""

    core: Core
    upload: Upload
    part_bytes: int
    gathered: bytearray = field(init=False)
    spare: bytearray = field(default_factory=bytearray)
    filled: int = 0
    received: int = 0
    number: int = 0
    hashed: hashlib._Hash = field(default_factory=hashlib.sha256)
    sending: asyncio.Task[object] | None = None

    def __post_init__(self) -> None:
        self.gathered = bytearray(self.part_bytes)

    async def add(self, piece: bytes) -> None:
        self.received += len(piece)
        if self.received > self.upload.size:
            raise bad_request(f"more came than the {self.upload.size} bytes that were announced", field="size")
        self.hashed.update(piece)
        left = memoryview(piece)
        while left:
            if self.filled == self.part_bytes:
                await self._send_part()
            taken = left[: self.part_bytes - self.filled]
            self.gathered[self.filled : self.filled + len(taken)] = taken
            self.filled += len(taken)
            left = left[len(taken) :]

    async def finish(self) -> None:
        if self.received != self.upload.size:
            raise bad_request(f"{self.received} bytes came, and {self.upload.size} were announced", field="size")
        if self.upload.sha256 is not None and self.hashed.hexdigest() != self.upload.sha256:
            raise bad_request("the bytes do not have the SHA-256 that was announced", field="sha256")
        if self.upload.part_size is None:
            name, kind = self.upload.object_name, self.upload.content_type
            await put_once(self.core.payloads, name, bytes(self.gathered), content_type=kind)
            return
        if self.filled:
            await self._send_part()
        await self._sent()

    async def _send_part(self) -> None:
        assert self.upload.multipart_id is not None
        await self._sent()
        self.number += 1
        part: Any = [memoryview(self.gathered)[: self.filled]]  # not copied: what holds bytes will do
        self.gathered, self.spare = self.spare or bytearray(self.part_bytes), self.gathered
        self.filled = 0
        put = self.core.payloads.put_part(self.upload.object_name, self.upload.multipart_id, self.number, part)
        self.sending = asyncio.create_task(put)

    async def _sent(self) -> None:
        sending, self.sending = self.sending, None
        if sending is not None:
            await sending

    async def drop(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.wait((self.sending,))


async def publish_stream(
    core: Core, subject: str, spec: UploadSpec, pieces: AsyncIterator[bytes]
) -> tuple[Receipt, str]:
    """The receipt, and the object's name. Unless exactly what was announced comes, nothing is published. An upload of a
    named producer stays open until its ticket ends: the same seqno may be sent again."""
    (ticket,) = await issue_tickets(core, subject, [spec])
    if isinstance(ticket, Receipt):
        return ticket, ""
    upload = ticket.upload
    intake = _Intake(core, upload, upload.part_size or upload.size)
    try:
        async for piece in pieces:
            await intake.add(piece)
        await intake.finish()
    except BaseException:
        await asyncio.shield(_give_up(core, intake))
        raise
    return await complete_upload(core, upload.id), upload.object_name


async def _give_up(core: Core, intake: _Intake) -> None:
    """Also when the caller was cancelled: what came so far goes now, not when the ticket expires."""
    await intake.drop()
    if intake.upload.producer_id is None:
        await abort_upload(core, intake.upload.id)
