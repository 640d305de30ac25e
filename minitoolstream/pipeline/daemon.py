"""Pull tasks of a stage, work on them, mark them: what every daemon does."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from minitoolstream.client import Client, MtsError
from minitoolstream.pipeline.stages import Result, Work

_LOOK_AGAIN = 0.2
_LOST = frozenset({"lease_lost", "stage_conflict"})


@dataclass
class Outcome:
    """What a run has done: tasks by what became of them."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    tasks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, task: Work, state: str, **facts: Any) -> None:
        setattr(self, state, getattr(self, state) + 1)
        self.tasks.append({"filename": task.filename, "shard": task.shard, "state": state, **facts})


@dataclass(frozen=True, slots=True)
class Manner:
    """How a daemon works. `owner` must be no one else's; `wait`: how long to wait, once the queue is empty, for tasks
    that others hold, and may have died with."""

    owner: str
    lease: int = 60
    wait: float = 0.0
    limit: int | None = None


def new_owner(stage: str) -> str:
    return f"{stage}@{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(4)}"


def run_daemon(client: Client, stage: str, work: Callable[[Work], Result], manner: Manner) -> Outcome:
    """Until the queue is empty. A task that fails is marked, and the next is taken; when a part that is needed is down,
    the task is left to come back by itself, and the error ends the run."""
    daemon = _Daemon(client, stage, work, manner)
    deadline, quiet = time.monotonic() + manner.wait, manner.wait == 0
    while manner.limit is None or len(daemon.outcome.tasks) < manner.limit:
        taken = client.pipeline.claim(stage, owner=manner.owner, limit=1, lease=manner.lease)
        if taken:
            daemon.do(Work(taken[0].filename, taken[0].shard))
            deadline, quiet = time.monotonic() + manner.wait, manner.wait == 0
            continue
        if quiet or time.monotonic() >= deadline:
            break
        # Then look into the queue once more: a lease may have ended in between.
        quiet = not daemon.others_work()
        if not quiet:
            time.sleep(_LOOK_AGAIN)
    return daemon.outcome


class _Daemon:
    def __init__(self, client: Client, stage: str, work: Callable[[Work], Result], manner: Manner) -> None:
        self._client, self._stage, self._work, self._manner = client, stage, work, manner
        self.outcome = Outcome()

    def others_work(self) -> bool:
        return self._client.pipeline.summary().by_stage[self._stage.replace("-", "_")].started > 0

    def do(self, task: Work) -> None:
        try:
            with _Keeper(self._client, self._stage, task, self._manner):
                facts = self._work(task)
        except MtsError as error:
            if error.retryable:
                raise
            self._fail(task, f"{error.code}: {error.message}")
        except Exception as error:  # a user's function may raise whatever it likes
            self._fail(task, f"{type(error).__name__}: {error}")
        else:
            pipeline, owner = self._client.pipeline, self._manner.owner
            if self._marked(lambda: pipeline.done(self._stage, task.filename, task.shard, owner=owner), task):
                self.outcome.add(task, "done", **facts)

    def _fail(self, task: Work, text: str) -> None:
        pipeline, owner = self._client.pipeline, self._manner.owner
        if self._marked(lambda: pipeline.fail(self._stage, task.filename, task.shard, owner=owner, error=text), task):
            self.outcome.add(task, "failed", error=text)

    def _marked(self, mark: Callable[[], None], task: Work) -> bool:
        """False when another has the task by now."""
        try:
            mark()
        except MtsError as error:
            if error.code not in _LOST:
                raise
            self.outcome.add(task, "lost")
            return False
        return True


class _Keeper:
    """Keeps a lease while the task is worked on."""

    def __init__(self, client: Client, stage: str, task: Work, manner: Manner) -> None:
        self._client, self._stage, self._task, self._manner = client, stage, task, manner
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="mts-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        task, manner = self._task, self._manner
        while not self._ended.wait(manner.lease / 3):
            # Whoever has lost it learns that from `done`.
            with suppress(MtsError):
                self._client.pipeline.start(
                    self._stage, task.filename, task.shard, owner=manner.owner, lease=manner.lease
                )
