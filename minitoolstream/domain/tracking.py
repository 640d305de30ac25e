"""The tracked pipeline: files, their shards, the stages these pass, and which change of status is allowed when."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from minitoolstream.domain.errors import MtsError, bad_request, not_found

STAGES = ("event-ingest", "shard-splitter", "shard-worker", "mysql-sender")
WORK_STAGES = STAGES[1:]
"""Those that daemons take from a queue; the first is done by whoever registers the file."""
STATUSES = ("new", "started", "done", "failed")
TRANSITIONS = ("start", "done", "fail")
RESULT = {"start": "started", "done": "done", "fail": "failed", "retry": "new"}
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "new": ("start", "fail"),
    "started": ("done", "fail"),
    "done": (),
    "failed": ("retry",),
}
"""What changes a status; a transition to the status that is there already changes nothing and is no error, but for
`start`, which only the owner may repeat, and `retry`."""

FILE_SUFFIX = ".event-ingest.txt"
FILENAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
OWNER_PATTERN = r"[\x21-\x7e]{1,200}"
MAX_SHARD = 2**31 - 1
MAX_SHARDS = 10_000
MAX_ERROR_LENGTH = 4_000
MAX_TASK_LEASE = 7 * 86_400
_FILENAME = re.compile(rf"{FILENAME_PATTERN}\Z")
_OWNER = re.compile(rf"{OWNER_PATTERN}\Z")


@dataclass(frozen=True, slots=True)
class StageState:
    """Of one stage: `attempts` is how often it was started, `error` what its last failure said."""

    status: str = "new"
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One shard of a file. A stage begins when the one before is done, so one owner and one lease are enough."""

    filename: str
    shard: int
    stages: tuple[StageState, ...]
    created_at: datetime
    updated_at: datetime
    owner: str | None = None
    lease_until: datetime | None = None

    def of(self, stage: str) -> StageState:
        return self.stages[STAGES.index(stage)]


@dataclass(frozen=True, slots=True)
class Claim:
    """Who takes tasks, and for how many seconds."""

    owner: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StageCounts:
    """How many shards are in which status."""

    new: int = 0
    started: int = 0
    done: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class FileSummary:
    filename: str
    shards: int
    stages: Mapping[str, StageCounts]
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """`done` and `failed` are those of the last stage."""

    shard: int
    total: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    total: int
    stages: Mapping[str, StageCounts]
    shards: Sequence[ShardSummary]


Decide = Callable[[Task, datetime], Task]
"""A task as it is stored and the store's time in, the task as it shall be out; an error leaves it as it is."""


def new_task(filename: str, shard: int, now: datetime) -> Task:
    stages = (StageState("started"), *(StageState() for _ in WORK_STAGES))
    return Task(filename, shard, stages, created_at=now, updated_at=now)


def lease_has_ended(task: Task, now: datetime) -> bool:
    return task.lease_until is not None and task.lease_until <= now


def as_seen(task: Task, now: datetime) -> Task:
    """As readers see it: a stage whose lease has ended is `new` again."""
    if not lease_has_ended(task, now):
        return task
    stages = tuple(replace(one, status="new") if one.status == "started" else one for one in task.stages)
    return replace(task, stages=stages, owner=None, lease_until=None)


def is_ready(task: Task, stage: str, now: datetime) -> bool:
    """Whether a daemon may take it."""
    seen = as_seen(task, now)
    return seen.of(stage).status == "new" and seen.of(before(stage)).status == "done"


def before(stage: str) -> str:
    return STAGES[STAGES.index(stage) - 1]


def finish_ingest(task: Task, now: datetime) -> Task:
    state = task.stages[0]
    return task if state.status == "done" else _with(task, STAGES[0], replace(state, status="done"), now)


def started(task: Task, stage: str, claim: Claim, now: datetime) -> Task:
    """Taken from the queue or by `start`."""
    state = task.of(stage)
    taken = _with(task, stage, replace(state, status="started", attempts=state.attempts + 1), now)
    return replace(taken, owner=claim.owner, lease_until=now + timedelta(seconds=claim.seconds))


def start(stage: str, claim: Claim) -> Decide:
    def decide(task: Task, now: datetime) -> Task:
        if is_ready(task, stage, now):
            return started(task, stage, claim, now)
        if task.of(stage).status == "started" and claim.owner is not None and task.owner == claim.owner:
            # A daemon that did not get the answer asks again; one that works for long keeps its lease this way.
            return replace(task, lease_until=now + timedelta(seconds=claim.seconds), updated_at=now)
        raise _refused(task, stage, "start", now)

    return decide


def finish(stage: str, owner: str | None) -> Decide:
    def decide(task: Task, now: datetime) -> Task:
        state = task.of(stage)
        if state.status == "done":
            return task
        if state.status != "started":
            raise _refused(task, stage, "done", now)
        _check_owner(task, stage, owner, now)
        return _released(_with(task, stage, replace(state, status="done"), now))

    return decide


def fail(stage: str, owner: str | None, error: str | None) -> Decide:
    def decide(task: Task, now: datetime) -> Task:
        state = task.of(stage)
        if state.status == "failed":
            return task
        waiting = state.status == "new" and not is_ready(task, stage, now)
        if state.status == "done" or waiting:
            raise _refused(task, stage, "fail", now)
        _check_owner(task, stage, owner, now)
        told = error[:MAX_ERROR_LENGTH] if error else None
        return _released(_with(task, stage, replace(state, status="failed", error=told), now))

    return decide


def retry(stage: str) -> Decide:
    """What was tried and what it said stays."""

    def decide(task: Task, now: datetime) -> Task:
        state = task.of(stage)
        if state.status != "failed":
            raise _refused(task, stage, "retry", now)
        return _with(task, stage, replace(state, status="new"), now)

    return decide


def _with(task: Task, stage: str, state: StageState, now: datetime) -> Task:
    at = STAGES.index(stage)
    return replace(task, stages=(*task.stages[:at], state, *task.stages[at + 1 :]), updated_at=now)


def _released(task: Task) -> Task:
    return replace(task, owner=None, lease_until=None)


def _check_owner(task: Task, stage: str, owner: str | None, now: datetime) -> None:
    """Only who names itself can be told from another; a lease that has ended and that nobody took is still its own."""
    if owner is not None and task.owner is not None and owner != task.owner:
        text = f"shard {task.shard} of {task.filename} is worked on by {task.owner}, not by {owner}"
        raise MtsError("lease_lost", text, _details(task, stage, now))


def _refused(task: Task, stage: str, transition: str, now: datetime) -> MtsError:
    details = _details(task, stage, now)
    status = details["status"]
    what = f"`{transition}` is not possible: {stage} of shard {task.shard} of {task.filename} is {status}"
    if "waits_for" in details:
        what += f", and waits for {details['waits_for']}, which is {task.of(details['waits_for']).status}"
    elif transition == "start" and status == "started":
        what += f" by {task.owner}" if task.owner else " by another"
    return MtsError("stage_conflict", what, {**details, "transition": transition})


def _details(task: Task, stage: str, now: datetime) -> dict[str, Any]:
    seen = as_seen(task, now)
    status = seen.of(stage).status
    details: dict[str, Any] = {
        "filename": task.filename,
        "shard": task.shard,
        "stage": stage,
        "status": status,
        "allowed": list(ALLOWED[status]),
    }
    if status == "new" and seen.of(before(stage)).status != "done":
        details |= {"allowed": [], "waits_for": before(stage)}
    if status == "started":
        details |= {"owner": seen.owner, "lease_until": seen.lease_until and wire_time(seen.lease_until)}
    return details


def wire_time(moment: datetime) -> str:
    """`2025-01-01T00:00:00Z`"""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_filename(filename: str) -> str:
    if filename.endswith(FILE_SUFFIX):
        raise bad_request(f"filename is what comes before {FILE_SUFFIX}", field="filename")
    if filename == "register":
        raise bad_request("`register` is a word of the API: no file can be called so", field="filename")
    if not _FILENAME.match(filename):
        raise bad_request(
            f"filename {filename[:80]!r} must be 1 to 200 of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
            field="filename",
        )
    return filename


def check_shards(shards: Sequence[int]) -> tuple[int, ...]:
    """Each once, in the order given."""
    if not 0 < len(shards) <= MAX_SHARDS:
        raise bad_request(f"shards must list 1 to {MAX_SHARDS} numbers", field="shards")
    return tuple(dict.fromkeys(check_shard(shard) for shard in shards))


def check_shard(shard: int) -> int:
    if not 0 <= shard <= MAX_SHARD:
        raise bad_request("a shard is a number between 0 and 2^31-1", field="shard")
    return shard


def check_stage(stage: str, transition: str | None = None) -> str:
    """A stage that daemons work on; the first one has nothing but its `done`."""
    if stage not in WORK_STAGES:
        first = f"{STAGES[0]} has no `{transition}`, only `done`; " if stage == STAGES[0] and transition else ""
        what = "" if first else f"there is no stage {stage[:80]!r} here; "
        known = [*WORK_STAGES]
        raise bad_request(f"{first}{what}stage is one of {', '.join(known)}", field="stage", allowed=known)
    return stage


def check_transition(transition: str) -> str:
    if transition not in TRANSITIONS:
        known = [*TRANSITIONS, "retry"]
        what = f"there is no transition {transition[:80]!r}; it is one of {', '.join(known)}"
        raise bad_request(what, field="transition", allowed=known)
    return transition


def check_owner(owner: str | None) -> str | None:
    if owner is not None and not _OWNER.match(owner):
        raise bad_request("owner must be 1 to 200 visible ASCII characters", field="owner")
    return owner


def check_lease(seconds: float | None, default: float) -> float:
    if seconds is None:
        return default
    if not 1 <= seconds <= MAX_TASK_LEASE:
        raise bad_request("lease must be 1 to 604800 seconds", field="lease")
    return seconds


def unknown_file(filename: str) -> MtsError:
    return not_found(f"there is no file {filename}: register it first", filename=filename)


def unknown_shard(filename: str, shard: int, known: Sequence[int]) -> MtsError:
    return not_found(f"{filename} has no shard {shard}", filename=filename, shard=shard, allowed=list(known))
