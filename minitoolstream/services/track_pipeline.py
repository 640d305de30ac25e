"""Files and their shards on their way through the pipeline's stages."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.domain import tracking
from minitoolstream.domain.tracking import Claim, FileSummary, PipelineSummary, Task
from minitoolstream.ports import QueuePlace
from minitoolstream.services.core import Core


async def prepare_tracking(core: Core) -> None:
    await core.tracking.prepare()


async def register_file(core: Core, filename: str, shards: Sequence[int]) -> bool:
    """Whether one of the shards is new."""
    return await core.tracking.register(filename, shards) > 0


async def finish_ingest(core: Core, filename: str) -> int:
    """How many shards had not been done."""
    return await core.tracking.finish_ingest(filename)


async def start_stage(
    core: Core, filename: str, shard: int, stage: str, *, owner: str | None, lease: float | None
) -> Task:
    """Claim one task: of two that try, one gets it."""
    return await core.tracking.change(filename, shard, tracking.start(stage, claim_of(core, owner, lease)))


async def finish_stage(core: Core, filename: str, shard: int, stage: str, *, owner: str | None) -> Task:
    return await core.tracking.change(filename, shard, tracking.finish(stage, owner))


async def fail_stage(
    core: Core, filename: str, shard: int, stage: str, *, owner: str | None, error: str | None
) -> Task:
    return await core.tracking.change(filename, shard, tracking.fail(stage, owner, error))


async def retry_stage(core: Core, filename: str, shard: int, stage: str) -> Task:
    return await core.tracking.change(filename, shard, tracking.retry(stage))


async def read_queue(core: Core, stage: str, place: QueuePlace) -> list[Task]:
    return await core.tracking.ready(stage, place)


async def claim_tasks(
    core: Core, stage: str, place: QueuePlace, *, owner: str | None, lease: float | None
) -> list[Task]:
    """What waits for a stage, already started in the caller's name."""
    return await core.tracking.claim(stage, place, claim_of(core, owner, lease))


def claim_of(core: Core, owner: str | None, lease: float | None) -> Claim:
    return Claim(owner, tracking.check_lease(lease, core.settings["pipeline.lease"]))


async def get_file(core: Core, filename: str) -> list[Task]:
    return await core.tracking.file(filename)


async def list_files(core: Core, limit: int, before: str | None) -> list[FileSummary]:
    return await core.tracking.files(limit, before)


async def summarise(core: Core) -> PipelineSummary:
    return await core.tracking.summary()
