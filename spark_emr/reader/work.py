"""Work of the user's on payloads that stay in Python, however large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from minitoolstream.client._codec import Decoder
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.message import Extent, Message, messages_of
from minitoolstream.ports import BlockReader
from spark_emr.errors import for_tasks
from spark_emr.reader.large import stored_blocks
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.read import PAYLOAD_PROBLEMS, REFERENCE, Stretch

T = TypeVar("T")
Work = Callable[[Message, Iterator[bytes]], T]


def check_work_options(options: ReadOptions) -> None:
    """There is no row for a problem to stand in, and nobody who would put chunks together."""
    if options.on_missing == "null":
        raise bad_request("map_payloads knows onMissing=fail and skip: null is for rows", field="onMissing")
    if options.large == "chunks":
        raise bad_request("map_payloads gives each payload as a whole: large=chunks is for rows", field="large")


def work_on(reader: BlockReader, options: ReadOptions, stretches: Iterable[Stretch], work: Work[T]) -> Iterator[T]:
    """`work(message, blocks)` for each message. Damage is an error, whatever `work` makes of it; or, with `skip`, what
    `work` has made of such a message is left out."""
    for stretch in stretches:
        for index, (message, _) in enumerate(messages_of(stretch.extent)):
            payload = (stretch.payloads or ())[index]
            if payload is not None:
                yield work(message, iter((payload,)))
            elif stretch.problems.get(index) == REFERENCE:
                yield from _on_large(reader, options, stretch.extent, message, work)


def _on_large(
    reader: BlockReader, options: ReadOptions, extent: Extent, message: Message, work: Work[T]
) -> Iterator[T]:
    blocks = _Watched(_decoded(reader, options, extent))
    try:
        result = work(message, blocks)
    except Exception:
        if blocks.damage is None:
            raise
    if blocks.damage is None:
        yield result
    elif options.on_missing == "fail":
        raise for_tasks(blocks.damage, sequence=extent.sequence, object_name=extent.object_name)


class _Watched(Iterator[bytes]):
    """Blocks of a payload, and the damage that whoever takes them meets."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.damage: MtsError | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._blocks)
        except MtsError as error:
            if error.code in PAYLOAD_PROBLEMS:
                self.damage = error
            raise


def _decoded(reader: BlockReader, options: ReadOptions, extent: Extent) -> Iterator[bytes]:
    decoder = Decoder(extent.codec if options.decode else None, extent.sequence)
    for block in stored_blocks(reader, extent, checksum=options.checksum):
        yield from decoder.feed(block)
    decoder.finish()
