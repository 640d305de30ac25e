"""Plan and read with real servers: opens what they need, and closes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from minitoolstream.bootstrap import open_blocks, open_core
from minitoolstream.config import Settings
from minitoolstream.domain.message import Extent
from minitoolstream.services.core import Core
from spark_emr.loop import iterate, run
from spark_emr.reader.large import stored_blocks
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.plan import Plan, ReadPartition
from spark_emr.reader.read import Stretch, read_parts
from spark_emr.reader.rows import make_plan, within

T = TypeVar("T")


def with_core(settings: Settings, work: Callable[[Core], Awaitable[T]]) -> T:
    """What `work(core)` returns; for ordinary code."""

    async def opened() -> T:
        core = await open_core(settings)
        try:
            return await work(core)
        finally:
            await core.close()

    return run(opened())


def plan_read(settings: Settings, options: ReadOptions, parallelism: int = 1) -> Plan:
    """Partitions for tasks, from what is there now."""
    return with_core(settings, lambda core: make_plan(core, options, parallelism))


async def stretches(
    settings: Settings, options: ReadOptions, partition: ReadPartition, *, in_order: bool = False
) -> AsyncGenerator[Stretch, None]:
    core = await open_core(settings)
    try:
        parts = partition.parts()
        async for stretch in read_parts(core.payloads, parts, options, _locator(core), in_order=in_order):
            yield stretch
    finally:
        await core.close()


def read_stretches(
    settings: Settings, options: ReadOptions, partition: ReadPartition, *, in_order: bool = False
) -> Generator[Stretch]:
    """The messages of a partition, extent by extent; `in_order` of their sequences, else roughly."""
    return iterate(stretches(settings, options, partition, in_order=in_order))


def read_blocks(settings: Settings, extent: Extent, *, checksum: bool = True) -> Iterator[bytes]:
    """The payload of one message as it is stored, of any size, block by block; damage is an error at its end."""
    return stored_blocks(open_blocks(settings), extent, checksum=checksum)


def read_batches(
    settings: Settings, options: ReadOptions, partition: ReadPartition, names: Sequence[str] | None = None
) -> Iterator[Any]:
    """The messages of a partition as Arrow batches with these columns, by default all that the options give."""
    from spark_emr.reader.columns import batches, column_names

    skip = options.on_missing == "skip"
    source = batches(stretches(settings, options, partition), names or column_names(options), skip=skip)
    return iterate(source)


def _locator(core: Core) -> Callable[[str, int, int], Awaitable[list[Extent]]]:
    async def locate(subject: str, first: int, last: int) -> list[Extent]:
        found: list[Extent] = []
        start = first
        while start <= last:
            page = await core.metadata.get_messages(subject, start, last - start + 1, whole=True)
            found += within(page.extents, first, last)
            if page.next_sequence > min(last, page.watermark):
                break
            start = page.next_sequence
        return found

    return locate
