"""A stream's place in a subject: where it begins, how far it may read, and a durable that shows how far it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
        self._read: int | None = None
        self._unacked: int | None = None

    def begin(self) -> int:
        """Where a query without a checkpoint begins: where its durable stands, else at `start` or `fromSequence`."""

        async def find(core: Core) -> int:
            options = self._options
            await core.subjects.get(options.subject)
            start = await resolve_start(core, options.subject, read_start(options.start))
            start = max(start, options.from_sequence)
            if options.from_time is not None:
                start = max(start, await core.metadata.sequence_at(options.subject, options.from_time))
            if options.durable is None:
                return start - 1
            return await self._durable(core, start)

        self._read = self._ask(find)
        return self._read

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
            latest = await core.metadata.latest_sequence(options.subject)
            most = options.batch_messages
            if not most:
                return max(latest, self._read or 0)
            read = self._read
            if read is None and options.durable is not None:  # after a restart: what was committed is acked
                read = (await core.deliveries.get_consumer(options.subject, options.durable)).last_sequence
            return latest if read is None else max(min(latest, read + most), read)

        return self._ask(find)

    def between(self, start: int, end: int) -> ReadOptions | None:
        """What a batch reads: behind `start` up to `end`; None for nothing."""
        self._read = self._unacked = max(end, self._read or 0)
        if end <= start:
            return None
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
