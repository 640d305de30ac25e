"""The pipeline's tasks and figures, from the domain's words to the shapes on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from minitoolstream.api import schema_pipeline as schema
from minitoolstream.domain.tracking import STAGES, FileSummary, PipelineSummary, StageCounts, Task, wire_time


def stage_answer(task: Task, stage: str, status: str, owner: str | None) -> schema.StageAnswer:
    answer = schema.StageAnswer(task.filename, task.shard, stage, status)
    if owner is not None and status == "started" and task.lease_until is not None:
        answer.owner, answer.lease_until = task.owner, wire_time(task.lease_until)
        answer.attempts = task.of(stage).attempts
    return answer


def queue(stage: str, tasks: Sequence[Task], *, claimed: bool) -> schema.Queue:
    return schema.Queue(stage, [_item(task, stage, claimed) for task in tasks])


def _item(task: Task, stage: str, claimed: bool) -> schema.QueueItem:
    item = schema.QueueItem(task.filename, task.shard, wire_time(task.created_at))
    if claimed and task.lease_until is not None:
        item.owner, item.lease_until, item.attempts = task.owner, wire_time(task.lease_until), task.of(stage).attempts
    return item


def file_status(filename: str, tasks: Sequence[Task], *, details: bool) -> schema.FileStatus:
    return schema.FileStatus(filename, [_shard(task, details) for task in tasks])


def _shard(task: Task, details: bool) -> schema.ShardStatus:
    ingest, splitter, worker, sender = (one.status for one in task.stages)
    shown = schema.ShardStatus(task.shard, ingest, splitter, worker, sender, wire_time(task.updated_at))
    if details:
        shown.created_at, shown.owner = wire_time(task.created_at), task.owner
        shown.lease_until = wire_time(task.lease_until) if task.lease_until else None
        states = list(zip(STAGES, task.stages, strict=True))
        shown.attempts = {stage: state.attempts for stage, state in states if state.attempts}
        shown.errors = {stage: state.error for stage, state in states if state.error}
    return shown


def files(found: Sequence[FileSummary], limit: int) -> schema.Files:
    shown = [
        schema.FileEntry(one.filename, one.shards, _by_stage(one.stages), wire_time(one.updated_at))
        for one in found[:limit]
    ]
    return schema.Files(shown, shown[-1].filename if len(found) > limit else None)


def figures(found: PipelineSummary) -> schema.PipelineFigures:
    shards = [schema.ShardFigures(**asdict(one)) for one in found.shards]
    return schema.PipelineFigures(found.total, _by_stage(found.stages), shards)


def _by_stage(counts: Mapping[str, StageCounts]) -> dict[str, schema.StatusCounts]:
    return {stage.replace("-", "_"): schema.StatusCounts(**asdict(one)) for stage, one in counts.items()}
