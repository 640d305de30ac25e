"""The daemons with what the settings say of them: the steps, and `mts pipeline run`, put arguments around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from minitoolstream.bootstrap import open_shard
from minitoolstream.client import Client
from minitoolstream.config import Settings, env_name
from minitoolstream.domain.errors import MtsError
from minitoolstream.pipeline.daemon import Manner, Outcome, run_daemon
from minitoolstream.pipeline.places import Place, place_of
from minitoolstream.pipeline.stages import Function, Result, Work, send, split, work
from minitoolstream.ports import ShardRows

SPLITTER, WORKER, SENDER = "shard-splitter", "shard-worker", "mysql-sender"


def files_of(settings: Settings, url: str | None = None) -> Place:
    """Where the pipeline's files are: as given, as set, or below `pipeline/` in the bucket of the payloads."""
    return place_of(url or settings["pipeline.files"] or f"s3://{settings['minio.bucket']}/pipeline", settings)


def run_splitter(client: Client, files: Place, manner: Manner) -> Outcome:
    return run_daemon(client, SPLITTER, lambda task: split(files, task), manner)


def run_worker(client: Client, files: Place, function: Function, manner: Manner) -> Outcome:
    return run_daemon(client, WORKER, lambda task: work(files, task, function), manner)


def run_sender(client: Client, files: Place, settings: Settings, manner: Manner) -> Outcome:
    with _databases(settings) as database_of:

        def send_one(task: Work) -> Result:
            return send(files, task, database_of(task.shard))

        return run_daemon(client, SENDER, send_one, manner)


@contextmanager
def _databases(settings: Settings) -> Iterator[Callable[[int], ShardRows]]:
    """Opened when a shard is first met."""
    urls: Mapping[int, str] = dict(settings["pipeline.shards"])
    opened: dict[int, ShardRows] = {}

    def database_of(shard: int) -> ShardRows:
        if shard not in opened:
            if shard not in urls:
                known = ", ".join(map(str, urls)) or "none"
                text = f"shard {shard} has no database: {env_name('pipeline.shards')} names those of {known}"
                raise MtsError("unknown_shard", text)
            opened[shard] = open_shard(settings, urls[shard])
        return opened[shard]

    try:
        yield database_of
    finally:
        for one in opened.values():
            one.close()
