"""Export of a subject: every message in order, with its metadata and its payload as it is stored."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from minitoolstream.client._export_format import (
    END,
    FORMAT,
    HEAD,
    VERSION,
    End,
    Head,
    Line,
    payload_name,
    read_lines,
    read_part,
    segment_name,
    segments_in,
)
from minitoolstream.client._place import Place
from minitoolstream.client._read import Reader, check_digest
from minitoolstream.client._stream import StoredPayload
from minitoolstream.client._subject_types import SubjectDetails
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Message
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MIB

SEGMENT_BYTES = 64 * MIB
SEGMENT_MESSAGES = 10_000
CountCallback = Callable[[int, int], None]
"""Called with how many messages are done, and how many there are, as far as is known."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds; `missing` messages have lost their payload.

    Example: `print(client.export_subject("orders", "backup/orders").messages)`
    """

    subject: str
    messages: int
    bytes: int
    missing: int


class Export:
    """One export to one place; one that was interrupted goes on behind its last whole segment."""

    def __init__(
        self, transport: Transport, details: SubjectDetails, place: Place, progress: CountCallback | None
    ) -> None:
        self._transport = transport
        self._reader = Reader(transport)
        self._details = details
        self._place = place
        self._progress = progress
        self._end = End(0, 0, 0, 0)

    async def run(self) -> Exported:
        try:
            return await self._run()
        except OSError as error:
            raise MtsError("cannot_write", f"cannot write the export: {error.strerror}") from None

    async def _run(self) -> Exported:
        names = await asyncio.to_thread(self._place.names)
        head = await self._head(names)
        if END not in names:
            start = await self._count(segments_in(names))
            await self._read_on(head, start)
            await self._put(END, msgspec.json.encode(self._end))
        else:
            self._end = read_part(END, await self._get(END), End)
            if self._details.latest_sequence > head.up_to:
                raise bad_request(
                    f"the export here is complete up to message {head.up_to}, and {head.subject} has newer ones: "
                    "take another place"
                )
        return Exported(head.subject, self._end.messages, self._end.bytes, self._end.missing)

    async def _head(self, names: list[str]) -> Head:
        subject = self._details.subject
        if HEAD in names:
            head = read_part(HEAD, await self._get(HEAD), Head)
            if head.subject != subject:
                raise bad_request(f"there is an export of {head.subject} already: take another place")
            if head.incarnation not in {None, self._details.incarnation}:
                raise bad_request(f"{subject} was deleted and made again since this export began: take another place")
            return head
        if names:
            raise bad_request("the place is not empty, and holds no export to go on with: take another one")
        partitions = sum(1 for one in self._details.partitions if one.active)
        up_to = self._details.latest_sequence
        now, settings, incarnation = int(time.time()), self._details.settings, self._details.incarnation
        head = Head(FORMAT, VERSION, str(uuid.uuid4()), subject, up_to, now, partitions, settings, incarnation)
        await self._put(HEAD, msgspec.json.encode(head))
        return head

    async def _count(self, segments: int) -> int:
        """What an earlier run wrote counts; answers where to go on."""
        last = 0
        for number in range(1, segments + 1):
            name = segment_name(number, "jsonl")
            lines = read_lines(name, await self._get(name))
            self._add(lines)
            last = lines[-1].sequence
        return last + 1

    def _add(self, lines: list[Line]) -> None:
        self._end.messages += len(lines)
        self._end.bytes += sum(line.size for line in lines if not line.payload_missing)
        self._end.missing += sum(line.payload_missing for line in lines)
        self._end.segments += 1
        if self._progress:
            self._progress(self._end.messages, max(self._details.messages, self._end.messages))

    async def _read_on(self, head: Head, start: int) -> None:
        segment = _Segment(self._place.scratch(), self._end.segments + 1)
        try:
            async with aclosing(self._reader.stored_messages(head.subject, start, head.up_to)) as extents:
                async for messages in extents:
                    for message in messages:
                        await self._write(segment, message)
                    if segment.is_full:
                        await self._close(segment)
                        segment = _Segment(self._place.scratch(), self._end.segments + 1)
            if segment.lines:
                await self._close(segment)
        finally:
            segment.discard()

    async def _write(self, segment: _Segment, message: Message) -> None:
        line = Line(
            message.sequence,
            message.partition,
            message.offset,
            message.create_at,
            dict(message.headers),
            message.content_type,
            message.size,
            codec=message.codec,
            unverified=message.unverified,
        )
        if message.payload_missing:
            line.payload_missing = True
        elif message.data is not None:
            segment.add(line, message.data)
            return
        else:
            await self._write_large(line, message)
        segment.lines.append(line)

    async def _write_large(self, line: Line, message: Message) -> None:
        line.file = payload_name(message.sequence)
        part = self._place.scratch() / f"{line.file}.part"
        digest, size = hashlib.sha256(), 0
        try:
            with part.open("wb") as file:
                async with aclosing(StoredPayload(self._transport, message).blocks()) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(file.write, block)
                        digest.update(block)
                        size += len(block)
        except MtsError as error:
            part.unlink(missing_ok=True)
            if error.code != "payload_missing":
                raise
            line.file, line.payload_missing = None, True
            return
        if not message.unverified:
            try:
                check_digest(size, digest.hexdigest(), message.size, message.sha256, message.sequence)
            except MtsError:
                part.unlink()
                raise
        line.size, line.sha256 = size, digest.hexdigest()
        await asyncio.to_thread(self._place.put, line.file, part)

    async def _close(self, segment: _Segment) -> None:
        data, lines = segment.finish()
        await asyncio.to_thread(self._place.put, segment_name(segment.number, "bin"), data)
        await asyncio.to_thread(self._place.put, segment_name(segment.number, "jsonl"), lines)
        self._add(segment.lines)

    async def _put(self, name: str, body: bytes) -> None:
        part = self._place.scratch() / f"{name}.part"
        part.write_bytes(body)
        await asyncio.to_thread(self._place.put, name, part)

    async def _get(self, name: str) -> bytes:
        file = await asyncio.to_thread(self._place.get, name)
        try:
            return file.read_bytes()
        finally:
            self._place.done(file)


class _Segment:
    """A segment in the making: its payloads in a file, its lines in memory."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.lines: list[Line] = []
        self._data = folder / f"{segment_name(number, 'bin')}.part"
        self._lines = folder / f"{segment_name(number, 'jsonl')}.part"
        self._file: BinaryIO = self._data.open("wb")

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= SEGMENT_MESSAGES or self._file.tell() >= SEGMENT_BYTES

    def add(self, line: Line, payload: bytes) -> None:
        line.at, line.size, line.sha256 = self._file.tell(), len(payload), hashlib.sha256(payload).hexdigest()
        self._file.write(payload)
        self.lines.append(line)

    def finish(self) -> tuple[Path, Path]:
        self._file.close()
        self._lines.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines))
        return self._data, self._lines

    def discard(self) -> None:
        self._file.close()
        for part in (self._data, self._lines):
            part.unlink(missing_ok=True)
