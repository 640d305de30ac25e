"""The pipeline's tracking in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from minitoolstream.domain import tracking
from minitoolstream.domain.tracking import (
    STAGES,
    Claim,
    Decide,
    FileSummary,
    PipelineSummary,
    ShardSummary,
    StageCounts,
    Task,
)
from minitoolstream.ports.tracking import QueuePlace


class MemoryTracking:
    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._tasks: dict[tuple[str, int], Task] = {}

    async def prepare(self) -> None:
        pass

    async def register(self, filename: str, shards: Sequence[int]) -> int:
        missing = [shard for shard in shards if (filename, shard) not in self._tasks]
        now = self._now()
        for shard in missing:
            self._put(tracking.new_task(filename, shard, now))
        return len(missing)

    async def finish_ingest(self, filename: str) -> int:
        changed = 0
        for task in self._of(filename):
            after = tracking.finish_ingest(task, self._now())
            changed += after is not task
            self._put(after)
        return changed

    async def change(self, filename: str, shard: int, decide: Decide) -> Task:
        now = self._now()
        task = self._tasks.get((filename, shard))
        if task is None:
            raise tracking.unknown_shard(filename, shard, [one.shard for one in self._of(filename)])
        after = decide(task, now)
        self._put(after)
        return tracking.as_seen(after, now)

    async def ready(self, stage: str, place: QueuePlace) -> list[Task]:
        now = self._now()
        return [tracking.as_seen(task, now) for task in self._ready(stage, place, now)]

    async def claim(self, stage: str, place: QueuePlace, claim: Claim) -> list[Task]:
        now = self._now()
        # What was put back comes first.
        found = sorted(self._ready(stage, place, now, all_of_it=True), key=lambda task: task.lease_until is None)
        taken = [tracking.started(task, stage, claim, now) for task in found[: place.limit]]
        for task in taken:
            self._put(task)
        return taken

    def _ready(self, stage: str, place: QueuePlace, now: datetime, *, all_of_it: bool = False) -> list[Task]:
        until = place.updated_before
        found = [
            task
            for task in self._tasks.values()
            if tracking.is_ready(task, stage, now) and (until is None or task.updated_at < until)
        ]
        found.sort(key=lambda task: (task.created_at, task.filename, task.shard))
        return found if all_of_it else found[place.offset : place.offset + place.limit]

    async def file(self, filename: str) -> list[Task]:
        now = self._now()
        return [tracking.as_seen(task, now) for task in self._of(filename)]

    async def files(self, limit: int, before: str | None) -> list[FileSummary]:
        names = sorted({task.filename for task in self._tasks.values()}, reverse=True)
        wanted = [name for name in names if before is None or name < before][:limit]
        return [_file_summary(name, await self.file(name)) for name in wanted]

    async def summary(self) -> PipelineSummary:
        now = self._now()
        tasks = [tracking.as_seen(task, now) for task in self._tasks.values()]
        shards = sorted({task.shard for task in tasks})
        return PipelineSummary(len(tasks), _counts(tasks), [_shard_summary(shard, tasks) for shard in shards])

    async def close(self) -> None:
        pass

    def _of(self, filename: str) -> list[Task]:
        found = sorted((task for task in self._tasks.values() if task.filename == filename), key=lambda one: one.shard)
        if not found:
            raise tracking.unknown_file(filename)
        return found

    def _put(self, task: Task) -> None:
        self._tasks[task.filename, task.shard] = task


def _file_summary(filename: str, tasks: Sequence[Task]) -> FileSummary:
    return FileSummary(filename, len(tasks), _counts(tasks), max(task.updated_at for task in tasks))


def _counts(tasks: Iterable[Task]) -> dict[str, StageCounts]:
    tasks = list(tasks)
    return {stage: StageCounts(**Counter(task.of(stage).status for task in tasks)) for stage in STAGES}


def _shard_summary(shard: int, tasks: Iterable[Task]) -> ShardSummary:
    last = Counter(task.of(STAGES[-1]).status for task in tasks if task.shard == shard)
    return ShardSummary(shard, last.total(), last["done"], last["failed"])
