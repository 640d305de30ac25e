"""The shapes of the pipeline's calls. What its specification names is always there and nothing else is; the rest comes
when it is asked for."""

from __future__ import annotations

from typing import Annotated

import msgspec

from minitoolstream.domain.tracking import FILENAME_PATTERN, MAX_SHARD, MAX_SHARDS, MAX_TASK_LEASE, OWNER_PATTERN

Filename = Annotated[
    str,
    msgspec.Meta(pattern=f"^{FILENAME_PATTERN}$", examples=["20250101000000"], description="up to .event-ingest.txt"),
]
Shard = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARD)]
Shards = Annotated[list[Shard], msgspec.Meta(min_length=1, max_length=MAX_SHARDS)]
Owner = Annotated[str, msgspec.Meta(pattern=f"^{OWNER_PATTERN}$")]
Lease = Annotated[float, msgspec.Meta(ge=1, le=MAX_TASK_LEASE)]


class RegisterRequest(msgspec.Struct, forbid_unknown_fields=True):
    filename: Filename
    shards: Shards
    owner: Owner | None = None


class Registered(msgspec.Struct):
    """`created`: one of the shards is new."""

    filename: str
    shards: list[int]
    created: bool


class IngestRequest(msgspec.Struct, forbid_unknown_fields=True):
    filename: Filename
    owner: Owner | None = None


class IngestDone(msgspec.Struct):
    """`updated_rows`: shards that were not done before."""

    filename: str
    updated_rows: int


class StageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`owner` names the caller, so that it can be told from others. `lease`: seconds that a started task is its own;
    `error`: what a failed one says."""

    filename: Filename
    shard: Shard
    owner: Owner | None = None
    lease: Lease | None = None
    error: str | None = None


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True):
    filename: Filename
    shard: Shard
    owner: Owner | None = None


class StageAnswer(msgspec.Struct, omit_defaults=True):
    """To one who named itself, `start` says how long it has, and how often this was tried."""

    filename: str
    shard: int
    stage: str
    status: str
    owner: str | None = None
    lease_until: str | None = None
    attempts: int | None = None


class QueueItem(msgspec.Struct, omit_defaults=True):
    """A claimed one also has whose it is, until when, and how often it was tried, this time included."""

    filename: str
    shard: int
    created_at: str
    owner: str | None = None
    lease_until: str | None = None
    attempts: int | None = None


class Queue(msgspec.Struct):
    stage: str
    items: list[QueueItem]


class ShardStatus(msgspec.Struct, omit_defaults=True):
    """With `details=true`: who works on it and until when, attempts and last errors by stage, where there are any."""

    shard: int
    event_ingest_status: str
    shard_splitter_status: str
    shard_worker_status: str
    mysql_sender_status: str
    updated_at: str
    created_at: str | None = None
    owner: str | None = None
    lease_until: str | None = None
    attempts: dict[str, int] = {}
    errors: dict[str, str] = {}


class FileStatus(msgspec.Struct):
    filename: str
    shards: list[ShardStatus]


class StatusCounts(msgspec.Struct):
    new: int
    started: int
    done: int
    failed: int


class FileEntry(msgspec.Struct):
    """How many of its shards are in which status, by stage."""

    filename: str
    shards: int
    by_stage: dict[str, StatusCounts]
    updated_at: str


class Files(msgspec.Struct, omit_defaults=True):
    """The last by name first; with `next`, there are more `before` that one."""

    files: list[FileEntry]
    next: str | None = None


class ShardFigures(msgspec.Struct):
    """`done` and `failed` of the last stage."""

    shard: int
    total: int
    done: int
    failed: int


class PipelineFigures(msgspec.Struct):
    total: int
    by_stage: dict[str, StatusCounts]
    by_shard: list[ShardFigures]
