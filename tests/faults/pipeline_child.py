"""The whole pipeline in a process that kills itself behind its nth call with an effect; 0: never.

python -m tests.faults.pipeline_child SUBJECT

Each line `FILENAME N` of its input is run in a fork, since most of such a short life would go into imports; the answer
is a line `CODE CALLS`: how the fork ended, and how many calls it made.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from minitoolstream.bootstrap import open_shard
from minitoolstream.client import Client
from minitoolstream.client._pipeline import Pipeline
from minitoolstream.config import Settings, load_settings
from minitoolstream.pipeline import run
from minitoolstream.pipeline.aggregate import by_key
from minitoolstream.pipeline.daemon import Manner, new_owner
from minitoolstream.pipeline.ingest import Range, ingest
from minitoolstream.pipeline.places import Bucket
from minitoolstream.ports import ShardRows

T = TypeVar("T")
SHARDS = range(2)
WITHIN = 120
"""Seconds that a run may take; then it is killed by another signal."""


class Killer:
    def __init__(self, after: int) -> None:
        self._left = after
        self.calls = 0

    def behind(self, call: Callable[..., T]) -> Callable[..., T]:
        def killed(*arguments: Any, **named: Any) -> T:
            result = call(*arguments, **named)
            self.calls += 1
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return killed


class Rows:
    def __init__(self, rows: ShardRows, killer: Killer) -> None:
        self._rows, self._killer = rows, killer

    def replace(self, filename: str, shard: int, rows: Iterable[tuple[str, str]]) -> None:
        self._killer.behind(self._rows.replace)(filename, shard, rows)

    def close(self) -> None:
        self._rows.close()


def arm(killer: Killer) -> None:
    """From now on every call with an effect is counted, in this process."""
    for name in ("register", "finish_ingest", "claim", "done"):
        setattr(Pipeline, name, killer.behind(getattr(Pipeline, name)))
    setattr(Bucket, "put_pieces", killer.behind(Bucket.put_pieces))  # noqa: B010
    setattr(run, "open_shard", lambda *given: Rows(open_shard(*given), killer))  # noqa: B010


def run_pipeline(settings: Settings, subject: str, filename: str) -> None:
    files = run.files_of(settings)
    with Client.from_settings(settings) as client:
        ingest(client, files, subject, Range(), shards=SHARDS, key="header:key", filename=filename)

        def manner(stage: str) -> Manner:
            return Manner(new_owner(stage), lease=1, wait=30)

        run.run_splitter(client, files, manner(run.SPLITTER))
        run.run_worker(client, files, by_key, manner(run.WORKER))
        run.run_sender(client, files, settings, manner(run.SENDER))


def main() -> None:
    for line in sys.stdin:
        filename, after = line.split()
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.write(tell, b"%d" % _calls(filename, int(after)))
            os._exit(0)
        os.close(tell)
        with os.fdopen(told) as calls:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            sys.stdout.write(f"{code} {calls.read() or 0}\n")
            sys.stdout.flush()


def _calls(filename: str, kill_after: int) -> int:
    signal.alarm(WITHIN)
    killer = Killer(kill_after)
    arm(killer)
    try:
        run_pipeline(load_settings(), sys.argv[1], filename)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    return killer.calls


if __name__ == "__main__":
    main()
