"""Arguments that steps over a range share, and what a summary says of it."""

from __future__ import annotations

import argparse
from typing import Any

from spark_emr.reader.options import LARGE, ON_HOLE, ON_MISSING, PLAN_FROM, ReadOptions, read_options
from spark_emr.reader.plan import Plan
from spark_emr.steps._step import NoData, Run

_FIELDS = (
    "subject",
    "from_sequence",
    "to_sequence",
    "from_time",
    "to_time",
    "partition",
    "plan",
    "on_missing",
    "on_hole",
    "partition_bytes",
    "partitions",
    "large",
)


def add_range(
    parser: argparse.ArgumentParser, *, missing: bool = True, large: bool = False, several: bool = False
) -> None:
    """`--subject`, the ends of a range, where its plan comes from."""
    if several:
        parser.add_argument("--subject", action="append", help="may be given several times; all unless given")
    else:
        parser.add_argument("--subject", required=True)
    parser.add_argument("--from-sequence", metavar="N", help="first sequence; the beginning unless given")
    parser.add_argument("--to-sequence", metavar="N", help="last sequence; the latest unless given")
    parser.add_argument("--from-time", metavar="T", help="unix seconds or ISO 8601")
    parser.add_argument("--to-time", metavar="T", help="the same, exclusive")
    parser.add_argument("--partition", metavar="N", help="messages of this partition alone")
    parser.add_argument("--plan", choices=PLAN_FROM, help="where the plan comes from: tarantool (default), or journal")
    parser.add_argument("--partition-bytes", metavar="SIZE", help="what a task reads, about: 128MiB")
    parser.add_argument("--partitions", metavar="N", help="tasks, instead")
    parser.add_argument("--on-hole", choices=ON_HOLE, help="messages that expired inside the range: ignore (default)")
    if missing:
        parser.add_argument("--on-missing", choices=ON_MISSING, help="payloads gone or damaged: fail (default)")
    if large:
        parser.add_argument("--large", choices=LARGE, help="payloads above 64 MiB: reference (default), or chunks")


def options_of(args: argparse.Namespace, **more: Any) -> ReadOptions:
    given = {name: getattr(args, name) for name in _FIELDS if getattr(args, name, None) is not None}
    return read_options({name: str(value) for name, value in {**given, **more}.items()})


def told(run: Run, options: ReadOptions, plan: Plan) -> dict[str, Any]:
    """What was read, into the manifest too; NoData when there was nothing."""
    facts = {
        "subject": options.subject,
        "messages": plan.messages,
        "bytes": plan.size,
        "first_sequence": plan.first_sequence,
        "last_sequence": plan.last_sequence,
        "tasks": len(plan.partitions),
        "holes": sum(hole.messages for hole in plan.holes),
        "plan": options.plan,
    }
    if not plan.messages:
        raise NoData(f"the range holds no messages of {options.subject}", **facts)
    run.manifest.add_read(**facts)
    return facts
