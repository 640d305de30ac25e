"""A stream's place in a subject: where it begins, how far it may read, and a durable that shows how far it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from minitoolstream.config import Settings
from minitoolstream.domain.consumer import ConsumerSettings, read_start
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import resolve_start
from spark_emr.errors import for_tasks
from spark_emr.reader.core import with_core
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.rows import Bounds, tarantool_rows

T = TypeVar("T")


class Follower:
    """Positions are sequences up to which everything was read. Spark's checkpoint is what counts; the durable follows
    it, so that lag shows like any reader's, and retention can wait for it."""

    def __init__(self, settings: Settings, options: ReadOptions) -> None:
        if options.to_sequence is not None or options.to_time is not None:
            raise for_tasks(bad_request("a stream has no end: toSequence and toTime are for batches"))
        if options.plan != "tarantool":
            raise for_tasks(bad_request("the journal is behind: the plan of a stream comes from tarantool"))
        self._settings = settings
        self._options = options
        self._begin: int | None = None
        self._read: int | None = None
        self._unacked: int | None = None

    def begin(self) -> int:
        """Where a query without a checkpoint begins: where its durable stands, else at `start` or `fromSequence`."""
        return self._ask(self._found_begin)

    async def _found_begin(self, core: Core) -> int:
        """Found once: Spark asks how far a new query may read before it asks where it begins."""
        if self._begin is None:
            options = self._options
            await core.subjects.get(options.subject)
            start = await resolve_start(core, options.subject, read_start(options.start))
            start = max(start, options.from_sequence)
            if options.from_time is not None:
                start = max(start, await core.metadata.sequence_at(options.subject, options.from_time))
            self._begin = start - 1 if options.durable is None else await self._durable(core, start)
        return self._begin

    async def _durable(self, core: Core, start: int) -> int:
        options = self._options
        assert options.durable is not None
        consumer, _ = await core.deliveries.put_consumer(options.subject, options.durable, ConsumerSettings(), start)
        if consumer.mode != "ordered":
            raise MtsError("mode_mismatch", f"the durable {options.durable} is shared; a stream needs an ordered one")
        return consumer.last_sequence

    def latest(self) -> int:
        """How far the next batch may go. Spark asks when the batch before is in its log, but calls `commit` for that
        only when there is another one: so the durable learns of it here."""

        async def find(core: Core) -> int:
            options = self._options
            if self._unacked is not None:
                await self._ack(core, self._unacked)
            read = await self._found_begin(core) if self._read is None else self._read
            latest = await core.metadata.latest_sequence(options.subject)
            return max(await self._bounded(core, read, latest) if options.batch_messages else latest, read)

        return self._ask(find)

    async def _bounded(self, core: Core, read: int, latest: int) -> int:
        """Where the next `batch_messages` end. Other subjects have sequences in between: only its own count."""
        options = self._options
        left = options.batch_messages
        async with aclosing(tarantool_rows(core, options, Bounds(read + 1, latest))) as pages:
            async for extents in pages:
                for extent in extents:
                    if extent.count >= left:
                        return extent.sequence - extent.count + left
                    left -= extent.count
        return latest

    def between(self, start: int, end: int) -> ReadOptions | None:
        """What a batch reads: behind `start` up to `end`; None for nothing. So Spark tells where its checkpoint stands,
        before it asks for the first offset: whether what was planned up to there has reached the sink, it does not."""
        if end < start:  # never told of the checkpoint: what was read would be read again
            raise for_tasks(
                MtsError("position_moved", f"a batch from {start} back to {end} is none: start the query again")
            )
        self._read = max(end, self._read or 0)
        if end == start:
            return None
        self._unacked = end
        return replace(self._options, from_sequence=max(start + 1, self._options.from_sequence), to_sequence=end)

    def commit(self, end: int) -> None:
        """Everything up to here has reached the sink."""
        self._ask(lambda core: self._ack(core, end))

    async def _ack(self, core: Core, end: int) -> None:
        options = self._options
        if options.durable is not None:
            try:
                await core.deliveries.ack(options.subject, options.durable, end)
            except MtsError as error:
                if error.code != "unknown_durable":
                    raise
                await self._durable(core, end + 1)
        self._unacked = None

    def _ask(self, work: Callable[[Core], Awaitable[T]]) -> T:
        try:
            return with_core(self._settings, work)
        except MtsError as error:
            raise for_tasks(error) from None
