"""Import of an export: the same messages in the same order, once, however often it is interrupted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from minitoolstream.client._batch import Frame, publish_frames, stored_frame
from minitoolstream.client._export import CountCallback
from minitoolstream.client._export_format import (
    END,
    FORMAT,
    HEAD,
    VERSION,
    End,
    Head,
    Line,
    read_lines,
    read_part,
    segment_name,
)
from minitoolstream.client._place import Place
from minitoolstream.client._producers import start_producer
from minitoolstream.client._source import FileSource
from minitoolstream.client._transport import Transport
from minitoolstream.client._types import Item
from minitoolstream.client._upload import Upload
from minitoolstream.client._upload_calls import Announcement
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MIB

_BATCH_BYTES = 8 * MIB
_BATCH_MESSAGES = 5_000


@dataclass(frozen=True, slots=True)
class Imported:
    """`skipped` were there from an earlier run; `missing` had no payload in the export.

    Example: `print(client.import_subject("backup/orders").messages)`
    """

    subject: str
    messages: int
    skipped: int
    missing: int


async def read_head(place: Place) -> Head:
    """What an export is of; an error when there is none, or it is not complete."""
    names = await asyncio.to_thread(place.names)
    if HEAD not in names:
        raise MtsError("not_found", f"there is no export in {place}")
    head = read_part(HEAD, await _read(place, HEAD), Head)
    if (head.format, head.version) != (FORMAT, VERSION):
        raise bad_request(f"this is an export of version {head.version}; version {VERSION} can be read")
    if END not in names:
        raise bad_request("the export is not complete: run the same export again, it goes on where it stopped")
    return head


class Import:
    """A named producer publishes; the seqno of a message is the sequence it had. What is stored is known by that."""

    def __init__(self, transport: Transport, place: Place, head: Head, subject: str) -> None:
        self._transport = transport
        self._place = place
        self._head = head
        self._subject = subject
        self._producer_id = f"import-{head.id}"
        self._epoch = 0
        self._last = 0
        self._done = 0
        self._skipped = 0
        self._missing = 0

    async def run(self, progress: CountCallback | None = None) -> Imported:
        end = read_part(END, await _read(self._place, END), End)
        session = await start_producer(self._transport, self._subject, self._producer_id, None)
        self._epoch, self._last = session.epoch, session.last_seqno
        for number in range(1, end.segments + 1):
            await self._segment(number)
            if progress:
                progress(self._done + self._skipped + self._missing, end.messages)
        if self._done + self._skipped + self._missing != end.messages:
            raise MtsError("checksum_mismatch", f"the export should hold {end.messages} messages")
        return Imported(self._subject, self._done, self._skipped, self._missing)

    async def _segment(self, number: int) -> None:
        name = segment_name(number, "jsonl")
        lines = read_lines(name, await _read(self._place, name))
        wanted = [line for line in lines if line.sequence > self._last and not line.payload_missing]
        self._missing += sum(line.payload_missing for line in lines)
        self._skipped += sum(line.sequence <= self._last and not line.payload_missing for line in lines)
        if not wanted:
            return
        data = await asyncio.to_thread(self._place.get, segment_name(number, "bin"))
        try:
            with data.open("rb") as payloads:
                for batch in _batches(wanted):
                    await self._publish(batch, payloads)
        finally:
            self._place.done(data)

    async def _publish(self, batch: list[Line], payloads: BinaryIO) -> None:
        if batch[0].file is not None:
            await self._publish_file(batch[0], batch[0].file)
        else:
            frames = await asyncio.to_thread(self._frames, batch, payloads)
            for result in await publish_frames(self._transport, self._subject, frames):
                result.unwrap()
        self._done += len(batch)

    def _frames(self, batch: list[Line], payloads: BinaryIO) -> list[Frame]:
        frames = []
        for line in batch:
            payloads.seek(line.at or 0)
            payload = payloads.read(line.size)
            _check(line, len(payload), hashlib.sha256(payload).hexdigest())
            frames.append(stored_frame(self._item(line), payload))
        return frames

    def _item(self, line: Line) -> Item:
        return Item(
            b"",
            line.content_type,
            line.headers,
            self._producer_id,
            line.sequence,
            self._epoch,
            _group(line.partition, self._head.partitions),
            line.codec,
        )

    async def _publish_file(self, line: Line, name: str) -> None:
        file = await asyncio.to_thread(self._place.get, name)
        try:
            source = FileSource(file)
            _check(line, source.size, await source.sha256())
            item = self._item(line)
            announced = Announcement(
                line.content_type, line.headers, item.producer_id, item.seqno, item.epoch, item.group, line.codec
            )
            await Upload(self._transport, self._subject, source, announced).run()
        finally:
            self._place.done(file)


def _group(partition: int, partitions: int) -> str | None:
    """Messages that shared a lane share one again."""
    return f"partition-{partition}" if partitions > 1 or partition > 0 else None


def _batches(lines: list[Line]) -> Iterator[list[Line]]:
    """Calls that fit; a payload in a file of its own comes alone."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        alone = line.file is not None
        if batch and (alone or size + line.size > _BATCH_BYTES or len(batch) == _BATCH_MESSAGES):
            yield batch
            batch, size = [], 0
        if alone:
            yield [line]
            continue
        batch.append(line)
        size += line.size
    if batch:
        yield batch


def _check(line: Line, size: int, sha256: str) -> None:
    if (size, sha256) != (line.size, line.sha256):
        message = f"the payload of message {line.sequence} in the export is not what its line says"
        raise MtsError("checksum_mismatch", message, {"sequence": line.sequence})


async def _read(place: Place, name: str) -> bytes:
    file = await asyncio.to_thread(place.get, name)
    try:
        return await asyncio.to_thread(file.read_bytes)
    finally:
        place.done(file)
