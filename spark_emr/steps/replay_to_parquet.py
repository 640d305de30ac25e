"""Messages of a range as Parquet files, with a manifest of those that count."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from spark_emr.frames import run_tasks
from spark_emr.reader import ReadPartition, plan_read, read_batches
from spark_emr.sinks import parquet
from spark_emr.steps._range import add_range, options_of, told
from spark_emr.steps._step import Run, Step, main


def arguments(parser: argparse.ArgumentParser) -> None:
    add_range(parser, large=True)
    parser.add_argument("--output", required=True, metavar="URL", help="a folder all nodes see, or s3://bucket/prefix")
    parser.add_argument("--no-payload", action="store_true", help="metadata alone")


def work(run: Run) -> Mapping[str, Any]:
    from spark_emr.reader.columns import arrow_schema, column_names

    options = options_of(run.args, payload=not run.args.no_payload)
    place, settings = run.place(run.args.output), run.settings
    parquet.must_be_free(place)
    plan = plan_read(settings, options, run.spark.sparkContext.defaultParallelism)
    facts = told(run, options, plan)
    names = column_names(options)
    prefix = f"part-{run.id[:8]}"

    def write(partition: ReadPartition) -> dict[str, Any] | None:
        batches = read_batches(settings, options, partition, names)
        return parquet.write_file(place, f"{prefix}-{partition.number:05}", batches, arrow_schema(names))

    files = [file for file in run_tasks(run.spark, plan.partitions, write) if file is not None]
    manifest = parquet.commit(place, files, run=run.id, **facts)
    for file in files:
        run.manifest.add_wrote(url=place.url(file["name"]), rows=file["rows"], bytes=file["bytes"])
    return {
        **facts,
        "rows": manifest["rows"],
        "files": len(files),
        "written_bytes": manifest["bytes"],
        "manifest": place.url(parquet.MANIFEST),
    }


STEP = Step("replay_to_parquet", str(__doc__), arguments, work)

if __name__ == "__main__":
    sys.exit(main(STEP))
