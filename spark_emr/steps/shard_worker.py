"""Shard worker: a function of the user's makes rows of a shard's messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.config import Settings
from minitoolstream.pipeline.daemon import Manner, Outcome
from minitoolstream.pipeline.places import Place
from minitoolstream.pipeline.run import WORKER, run_worker
from minitoolstream.pipeline.stages import DEFAULT_FUNCTION, load_function
from spark_emr.steps._daemon import UNDER_SPARK, daemon_arguments, run_stage
from spark_emr.steps._step import Run, Step, main


def arguments(parser: argparse.ArgumentParser) -> None:
    daemon_arguments(parser)
    parser.add_argument("--function", default=DEFAULT_FUNCTION, metavar="MODULE:NAME", help=f"({DEFAULT_FUNCTION})")


def work(run: Run) -> Mapping[str, Any]:
    name = run.args.function
    load_function(name)  # a wrong name is told before anything is claimed

    def daemon(_settings: Settings, client: Client, files: Place, manner: Manner) -> Outcome:
        return run_worker(client, files, load_function(name), manner)

    return run_stage(run, WORKER, daemon)


STEP = Step("shard_worker", "Make rows of the shards that are split.", arguments, work, uses_spark=UNDER_SPARK)

if __name__ == "__main__":
    sys.exit(main(STEP))
