"""Publish the messages of a range again, into another subject, each exactly once.

Run again, also after a kill or with a later end, it goes on where it stopped: a replay is known by its --name, the
subject it reads and where it begins, and another beginning is another replay. Messages of a partition keep their order:
each partition is one task and one named producer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.subject import check_subject
from minitoolstream.services.core import Core
from spark_emr.frames import run_tasks
from spark_emr.reader import ReadOptions, ReadPartition, read_stretches
from spark_emr.reader.core import with_core
from spark_emr.reader.plan import Plan
from spark_emr.reader.rows import make_plan
from spark_emr.sinks.subject import publish_lane
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import Run, Step, main

_ONE_TASK = 1 << 40


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser)
    parser.add_argument("--to-subject", required=True)
    parser.add_argument("--name", default="replay", help="of this replay, to go on with it (replay)")


def work(run: Run) -> Mapping[str, Any]:
    options = replace(options_of(run.args, payload="true"), partition_bytes=_ONE_TASK, partitions=1)
    target, settings = check_subject(run.args.to_subject), run.settings
    if target == options.subject:
        raise bad_request("a subject is not replayed into itself: that would never end")
    replay, skip = replay_id(run.args.name, options), options.on_missing != "fail"

    async def plan_lanes(core: Core) -> list[tuple[int, Plan]]:
        lanes = [one.partition for one in (await core.subjects.get(options.subject)).partitions]
        wanted = lanes if options.partition is None else [options.partition]
        return [(lane, await make_plan(core, replace(options, partition=lane))) for lane in wanted]

    lanes = with_core(settings, plan_lanes)
    facts = told(run, options, _together([plan for _, plan in lanes]))
    tasks = [(lane, partition) for lane, plan in lanes for partition in plan.partitions]

    def publish(task: tuple[int, ReadPartition]) -> dict[str, Any]:
        lane, partition = task
        with closing(read_stretches(settings, options, partition, in_order=True)) as stretches:
            return {"lane": lane, **asdict(publish_lane(settings, target, f"{replay}/{lane}", stretches, skip=skip))}

    results = run_tasks(run.spark, tasks, publish)
    for result in results:
        run.manifest.add_wrote(subject=target, **result)
    counts = {key: sum(result[key] for result in results) for key in ("messages", "bytes", "already", "skipped")}
    return {**facts, "to_subject": target, "name": run.args.name, "published": counts}


def replay_id(name: str, options: ReadOptions) -> str:
    """What its producers are called. What lies before a producer's last seqno counts as published, which is true only
    of those who began at the same place."""
    begin = str(options.from_sequence) + ("" if options.from_time is None else f"@{options.from_time}")
    return f"{name}/{options.subject}/{begin}"


def _together(plans: list[Plan]) -> Plan:
    firsts = [plan.first_sequence for plan in plans if plan.first_sequence is not None]
    lasts = [plan.last_sequence for plan in plans if plan.last_sequence is not None]
    return Plan(
        [partition for plan in plans for partition in plan.partitions],
        sum(plan.messages for plan in plans),
        sum(plan.size for plan in plans),
        min(firsts, default=None),
        max(lasts, default=None),
        tuple(hole for plan in plans for hole in plan.holes),
    )


STEP = Step("replay_to_subject", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
