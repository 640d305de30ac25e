"""Messages and bytes of a range by subject and hour, and by the values of a header: a table, and a plot."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spark_emr.frames import planned_messages
from spark_emr.places import Place
from spark_emr.reader import plan_read
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import Run, Step, main

_MOST_SHOWN = 20
_NONE = "(none)"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, missing=False)
    parser.add_argument("--header", metavar="NAME", help="count by the values of this header too")
    parser.add_argument("--output", metavar="URL", help="write stats.csv and stats.svg here")


def work(run: Run) -> Mapping[str, Any]:
    from pyspark.sql import functions as f

    options = replace(options_of(run.args), payload=False)
    plan = plan_read(run.settings, options, run.spark.sparkContext.defaultParallelism)
    facts = told(run, options, plan)
    messages = planned_messages(run.spark, run.settings, options, plan)
    hour = (f.col("create_at") - f.col("create_at") % 3600).alias("hour")
    header = f.col("headers")[run.args.header] if run.args.header else f.lit(None).cast("string")
    grouped = messages.groupBy("subject", hour, f.coalesce(header, f.lit(_NONE)).alias("value"))
    counted = grouped.agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    rows = [row.asDict() for row in counted.orderBy("subject", "hour", "value").collect()]
    if run.args.output:
        _write(run, run.place(run.args.output), rows)
    by_value = _summed(rows, "value") if run.args.header else {}
    return {
        **facts,
        "hours": [{"hour": _hour(key), **total} for key, total in _summed(rows, "hour").items()],
        "header": run.args.header,
        "values": dict(sorted(by_value.items(), key=lambda item: -int(item[1]["messages"]))[:_MOST_SHOWN]),
    }


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
    import csv

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
