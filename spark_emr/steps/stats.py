"""Messages and bytes by subject, hour and the values of a header: a table, and a plot. Of one subject, some, or all."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import messages_of
from minitoolstream.pipeline.places import Place
from minitoolstream.services.core import Core
from spark_emr.frames import run_tasks
from spark_emr.reader import Plan, ReadOptions, ReadPartition, read_stretches
from spark_emr.reader.core import with_core
from spark_emr.reader.rows import make_plan
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import NoData, Run, Step, main

_MOST_SHOWN = 20
_NONE = "(none)"
_SUBJECTS_AT_ONCE = 1000
Key = tuple[str, int, str]
Task = tuple[ReadOptions, ReadPartition]


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, missing=False, several=True)
    parser.add_argument("--header", metavar="NAME", help="count by the values of this header too")
    parser.add_argument("--output", metavar="URL", help="write stats.csv and stats.svg here")


def work(run: Run) -> Mapping[str, Any]:
    args, settings = run.args, run.settings
    parallelism = run.spark.sparkContext.defaultParallelism

    found = with_core(settings, lambda core: plan_all(core, args, parallelism))
    plans = [(options, plan) for options, plan in found if plan.messages]
    if not plans:
        raise NoData("the range holds no messages", subjects=len(args.subject or ()))
    facts = [told(run, options, plan) for options, plan in plans]
    tasks: list[Task] = [(options, partition) for options, plan in plans for partition in plan.partitions]
    header = args.header
    counted: dict[Key, list[int]] = {}
    for counts in run_tasks(run.spark, tasks, lambda task: count(settings, task, header)):
        for key, (messages, size) in counts.items():
            total = counted.setdefault(key, [0, 0])
            total[0] += messages
            total[1] += size
    rows = [
        {"subject": subject, "hour": hour, "value": value, "messages": messages, "bytes": size}
        for (subject, hour, value), (messages, size) in sorted(counted.items())
    ]
    if args.output:
        _write(run, run.place(args.output), rows)
    by_value = _summed(rows, "value") if header else {}
    return {
        "messages": sum(fact["messages"] for fact in facts),
        "bytes": sum(fact["bytes"] for fact in facts),
        "subjects": _summed(rows, "subject"),
        "hours": [{"hour": _hour(key), **total} for key, total in sorted(_summed(rows, "hour").items())],
        "header": header,
        "values": dict(sorted(by_value.items(), key=lambda item: -int(item[1]["messages"]))[:_MOST_SHOWN]),
    }


async def plan_all(core: Core, args: argparse.Namespace, parallelism: int) -> list[tuple[ReadOptions, Plan]]:
    """Each subject once. Of all there are, one may be deleted meanwhile; one that was asked for must be there."""
    planned = []
    for subject in dict.fromkeys(args.subject or await _all_subjects(core)):
        options = options_of(args, subject=subject)
        try:
            planned.append((options, await make_plan(core, options, parallelism)))
        except MtsError as error:
            if args.subject or error.code != "unknown_subject":
                raise
    return planned


async def _all_subjects(core: Core) -> list[str]:
    names: list[str] = []
    more = True
    while more:
        found, more = await core.metadata.subjects(names[-1] if names else "", _SUBJECTS_AT_ONCE)
        names += [str(subject["subject"]) for subject in found]
    return names


def count(settings: Settings, task: Task, header: str | None) -> dict[Key, tuple[int, int]]:
    """What a task found: messages and bytes by subject, hour and value. Extents that share their headers are counted as
    a whole."""
    options, partition = task
    found: dict[Key, tuple[int, int]] = {}

    def add(value: str, at: int, messages: int, size: int) -> None:
        key = (options.subject, at - at % 3600, value)
        before = found.get(key, (0, 0))
        found[key] = (before[0] + messages, before[1] + size)

    for stretch in read_stretches(settings, replace(options, payload=False), partition):
        extent = stretch.extent
        if header is None or not extent.own:
            value = extent.headers.get(header, _NONE) if header else _NONE
            add(value, extent.create_at, extent.count, extent.size)
            continue
        for message, _ in messages_of(extent):
            add(message.headers.get(header, _NONE), extent.create_at, 1, message.size)
    return found


def _summed(rows: Sequence[Mapping[str, Any]], key: str) -> dict[Any, dict[str, int]]:
    totals: dict[Any, dict[str, int]] = {}
    for row in rows:
        total = totals.setdefault(row[key], {"messages": 0, "bytes": 0})
        total["messages"] += row["messages"]
        total["bytes"] += row["bytes"]
    return totals


def _hour(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:00Z")


def _write(run: Run, place: Place, rows: Sequence[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["subject", "hour", run.args.header or "header", "messages", "bytes"])
    table.writerows([row["subject"], _hour(row["hour"]), row["value"], row["messages"], row["bytes"]] for row in rows)
    place.put_new("stats.csv", text.getvalue().encode(), "text/csv")
    run.manifest.add_wrote(url=place.url("stats.csv"), rows=len(rows))
    place.put_new("stats.svg", _plot(rows), "image/svg+xml")
    run.manifest.add_wrote(url=place.url("stats.svg"))


def _plot(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Messages and bytes by hour."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    totals = _summed(rows, "hour")
    hours = [_hour(key) for key in totals]
    figure = Figure(figsize=(max(6.0, 0.3 * len(hours)), 5), layout="constrained")
    FigureCanvasSVG(figure)
    for place, name in enumerate(("messages", "bytes"), 1):
        axes = figure.add_subplot(2, 1, place)
        axes.bar(hours, [total[name] for total in totals.values()])
        axes.set_ylabel(name)
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
    target = io.BytesIO()
    figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()


STEP = Step("stats", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
