"""The whole pipeline in a process that kills itself behind its nth call with an effect; 0: never.

python -m tests.faults.pipeline_child SUBJECT FILENAME N
"""

from __future__ import annotations

import os
import signal
import sys
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
    killer = Killer(int(sys.argv[3]))
    arm(killer)
    run_pipeline(load_settings(), sys.argv[1], sys.argv[2])
    sys.stdout.write(f"{killer.calls}\n")


if __name__ == "__main__":
    main()
