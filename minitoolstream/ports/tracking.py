"""Where the pipeline's files and shards are tracked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from minitoolstream.domain.tracking import Claim, Decide, FileSummary, PipelineSummary, Task


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """What of a queue is asked for: tasks not touched since `updated_before`, the oldest first."""

    limit: int
    offset: int = 0
    updated_before: datetime | None = None


class TrackingStore(Protocol):
    """Every call is one transaction by the store's own clock, and is stored when it answers. A lease that has ended
    shows as a task that is `new` again."""

    async def prepare(self) -> None:
        """Make the table where it is missing. The other calls do it too, once."""

    async def register(self, filename: str, shards: Sequence[int]) -> int:
        """How many of these shards were not known before."""

    async def finish_ingest(self, filename: str) -> int:
        """How many shards changed; `not_found` for a file without any."""

    async def change(self, filename: str, shard: int, decide: Decide) -> Task:
        """One task, changed as `decide` says with nobody in between; `not_found` when there is none."""

    async def ready(self, stage: str, place: QueuePlace) -> list[Task]:
        """What waits for a stage."""

    async def claim(self, stage: str, place: QueuePlace, claim: Claim) -> list[Task]:
        """The same, started in the caller's name: no two calls get the same task."""

    async def file(self, filename: str) -> list[Task]:
        """Its shards by number; `not_found` without any."""

    async def files(self, limit: int, before: str | None) -> list[FileSummary]:
        """The last files by name, those before a name."""

    async def summary(self) -> PipelineSummary: ...

    async def close(self) -> None: ...
