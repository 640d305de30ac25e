"""Shard splitter: the messages of each shard that waits, by a stable hash of their keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.config import Settings
from minitoolstream.pipeline.daemon import Manner, Outcome
from minitoolstream.pipeline.places import Place
from minitoolstream.pipeline.run import SPLITTER, run_splitter
from spark_emr.steps._daemon import UNDER_SPARK, daemon_arguments, run_stage
from spark_emr.steps._step import Run, Step, main


def daemon(_settings: Settings, client: Client, files: Place, manner: Manner) -> Outcome:
    return run_splitter(client, files, manner)


def work(run: Run) -> Mapping[str, Any]:
    return run_stage(run, SPLITTER, daemon)


STEP = Step("shard_splitter", "Split written files into their shards.", daemon_arguments, work, uses_spark=UNDER_SPARK)

if __name__ == "__main__":
    sys.exit(main(STEP))
