"""What the pipeline's daemons share as steps: how they pull tasks, and how a run is told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.domain.tracking import MAX_TASK_LEASE
from minitoolstream.pipeline.daemon import Manner, Outcome, new_owner
from minitoolstream.pipeline.places import Place
from minitoolstream.pipeline.run import files_of
from spark_emr.steps._step import NoData, Run, VerificationFailed

UNDER_SPARK = "PYSPARK_GATEWAY_PORT" in os.environ
"""`spark-submit` started this process: settings may be in Spark's conf. Else the daemons need no Spark at all."""


def files_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", metavar="URL", help="folder or s3://bucket/prefix (setting pipeline.files)")


def daemon_arguments(parser: argparse.ArgumentParser) -> None:
    files_argument(parser)
    parser.add_argument("--owner", help="this daemon's name, no one else's (made up)")
    parser.add_argument("--lease", type=_between(1, MAX_TASK_LEASE), default=60, help="seconds a task is ours (60)")
    parser.add_argument(
        "--wait", type=_between(0, 86400), default=0, help="seconds to wait for tasks that others hold (0)"
    )
    parser.add_argument("--limit", type=_between(1, 10**9), help="tasks at most (all)")


def _between(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return number


def run_stage(run: Run, stage: str, daemon: Callable[[Client, Place, Manner], Outcome]) -> Mapping[str, Any]:
    """All tasks that wait; `NoData` when there are none, `VerificationFailed` when one of them failed."""
    args = run.args
    manner = Manner(args.owner or new_owner(stage), args.lease, args.wait, args.limit)
    files = files_of(run.settings, args.files)
    with Client.from_settings(run.settings) as client:
        outcome = daemon(client, files, manner)
    for task in outcome.tasks:
        run.manifest.add_wrote(stage=stage, **task)
    summary = {"stage": stage, "done": outcome.done, "failed": outcome.failed, "lost": outcome.lost}
    if not outcome.tasks:
        raise NoData(f"nothing waits for {stage}", **summary)
    if outcome.failed:
        raise VerificationFailed(f"{outcome.failed} tasks of {stage} failed: `mts pipeline status` says why", **summary)
    return summary
