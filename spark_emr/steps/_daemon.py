"""What the pipeline's daemons share as steps: how they pull tasks, and how a run is told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.config import Settings
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


Daemon = Callable[[Settings, Client, Place, Manner], Outcome]


def run_stage(run: Run, stage: str, daemon: Daemon) -> Mapping[str, Any]:
    """All tasks that wait; `NoData` when there are none, `VerificationFailed` when one of them failed. Under Spark as
    many daemons work as tasks can run, wherever Spark puts them: what one has claimed, no other gets."""
    args, settings = run.args, run.settings
    url, lease, wait, limit = args.files, args.lease, args.wait, args.limit
    owners = owners_of(args.owner or new_owner(stage), _daemons(run))

    def work(owner: str) -> Outcome:
        with Client.from_settings(settings) as client:
            return daemon(settings, client, files_of(settings, url), Manner(owner, lease, wait, limit))

    outcomes = _under_spark(run, owners, work) if run.step.uses_spark else [work(owner) for owner in owners]
    for outcome in outcomes:
        for task in outcome.tasks:
            run.manifest.add_wrote(stage=stage, **task)
    summary: dict[str, Any] = {"stage": stage, "daemons": len(owners)}
    summary |= {name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("done", "failed", "lost")}
    if not run.manifest.wrote:
        raise NoData(f"nothing waits for {stage}", **summary)
    if failed := summary["failed"]:
        raise VerificationFailed(f"{failed} tasks of {stage} failed: `mts pipeline status` says why", **summary)
    return summary


def _under_spark(run: Run, owners: list[str], work: Callable[[str], Outcome]) -> list[Outcome]:
    from spark_emr.frames import run_tasks  # needs what only a cluster must have

    return run_tasks(run.spark, owners, work)


def _daemons(run: Run) -> int:
    """One where tasks are counted: `--limit` is of all together."""
    if not run.step.uses_spark or run.args.limit is not None:
        return 1
    return max(int(run.spark.sparkContext.defaultParallelism), 1)


def owners_of(name: str, count: int) -> list[str]:
    """No two daemons share a name: a lease is told by it."""
    return [name] if count == 1 else [f"{name}/{number}" for number in range(count)]
