"""Back into a subject, exactly once: each lane is a named producer whose seqnos are the sequences it replays.

A producer's seqno is stored at most once, so a lane that ran before, was killed, or runs twice at a time goes on behind
the last one that is stored: a newer session fences the older.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from minitoolstream.client import Client, Item
from minitoolstream.client._codec import Decoder
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent
from spark_emr.errors import for_tasks
from spark_emr.reader import read_blocks
from spark_emr.reader.read import PAYLOAD_PROBLEMS, REFERENCE, Stretch

_AT_ONCE = 1000
_BYTES = 8 << 20


@dataclass(slots=True)
class Published:
    """`already`: messages that an earlier run was done with. `skipped`: those without a payload."""

    messages: int = 0
    bytes: int = 0
    already: int = 0
    skipped: int = 0
    first_sequence: int | None = None
    last_sequence: int | None = None


def publish_lane(
    settings: Settings, subject: str, producer_id: str, stretches: Iterator[Stretch], *, skip: bool = False
) -> Published:
    """Publish messages, which come in the order of their sequences, under their sequences as seqnos. With `skip`, large
    payloads that are gone or damaged are left out, like those that come as such."""
    done = Published()
    with Client.from_settings(settings) as client:
        session = client.start_producer(subject, producer_id)
        lane = _Lane(client, settings, subject, producer_id, session.epoch, done, skip)
        for stretch in stretches:
            for sequence, item in _messages(stretch, producer_id, session.epoch):
                if sequence <= session.last_seqno:
                    done.already += 1
                elif item is not None:
                    lane.add(item)
                elif stretch.problems.get(0) == REFERENCE and stretch.extent.count == 1:
                    lane.add_large(stretch.extent)
                else:
                    done.skipped += 1
        lane.flush()
    return done


def _messages(stretch: Stretch, producer_id: str, epoch: int) -> Iterator[tuple[int, Item | None]]:
    extent, payloads = stretch.extent, stretch.payloads or []
    first = extent.sequence - extent.count + 1
    own = {entry[0]: entry for entry in extent.own or ()}
    for index, payload in enumerate(payloads):
        if payload is None:
            yield first + index, None
            continue
        entry = own.get(index, (index, None, None))
        headers = extent.headers if entry[1] is None else entry[1]
        content_type = entry[2] or extent.content_type
        yield (
            first + index,
            Item(payload, content_type, headers, producer_id, first + index, epoch, codec=extent.codec),
        )


@dataclass(slots=True)
class _Lane:
    client: Client
    settings: Settings
    subject: str
    producer_id: str
    epoch: int
    done: Published
    skip: bool
    items: list[Item] = field(default_factory=list)
    size: int = 0

    def add(self, item: Item) -> None:
        self.items.append(item)
        self.size += len(item.data)
        if len(self.items) >= _AT_ONCE or self.size >= _BYTES:
            self.flush()

    def flush(self) -> None:
        if not self.items:
            return
        for item, result in zip(self.items, self.client.publish_batch(self.subject, self.items), strict=True):
            try:
                self._count(result.unwrap().sequence, len(item.data))
            except MtsError as error:  # the subject refused it, and so all behind it
                raise for_tasks(error, sequence=item.seqno) from None
        self.items, self.size = [], 0

    def add_large(self, extent: Extent) -> None:
        """By way of a file: its order is kept, since what came before it is stored."""
        self.flush()
        with tempfile.NamedTemporaryFile(prefix="mts-replay-") as file:
            try:
                decoder = Decoder(extent.codec, extent.sequence)
                for block in read_blocks(self.settings, extent):
                    file.writelines(decoder.feed(block))
                decoder.finish()
            except MtsError as error:
                if not self.skip or error.code not in PAYLOAD_PROBLEMS:
                    raise
                self.done.skipped += 1
                return
            file.flush()
            receipt = self.client.publish_file(
                self.subject,
                Path(file.name),
                content_type=extent.content_type,
                headers=extent.headers,
                producer_id=self.producer_id,
                seqno=extent.sequence,
                epoch=self.epoch,
                codec=extent.codec,
                resume=False,
            )
        self._count(receipt.sequence, extent.size)

    def _count(self, sequence: int | None, size: int) -> None:
        done = self.done
        done.messages += 1
        done.bytes += size
        if sequence is not None:
            done.first_sequence = sequence if done.first_sequence is None else min(done.first_sequence, sequence)
            done.last_sequence = max(sequence, done.last_sequence or 0)
