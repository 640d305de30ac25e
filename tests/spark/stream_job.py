"""A streaming application that a test kills: one query into Parquet files, one into `foreachBatch`.

    python -m tests.spark.stream_job <subject> <folder> [--die]

With --die it waits until the first query is in the middle of a task, and the second has written its batch, which Spark
does not know yet; then it kills all of itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from minitoolstream.client import Client
from minitoolstream.config import load_settings
from minitoolstream.pipeline.places import place_of
from spark_emr.sinks.parquet import write_batch
from spark_emr.source import register

DEADLINE = 240.0


def wait_for(path: Path) -> None:
    until = time.monotonic() + DEADLINE
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.05)


def lag(client: Client, subject: str, durable: str) -> int:
    """How far a query is behind; one that has not begun is, too."""
    known = {consumer.durable: consumer.lag for consumer in client.consumers.list(subject)}
    return known.get(durable, 1)


def main(subject: str, folder: Path, *, dies: bool) -> None:
    spark = SparkSession.builder.master("local[2]").appName("stream-job").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    in_task, never = folder / "in-task", folder / "never"

    def stream(durable: str) -> Any:
        reader = spark.readStream.format("minitoolstream").option("subject", subject).option("payload", "true")
        return reader.option("durable", durable).load()

    def pause(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if dies:
                in_task.touch()
                wait_for(never)

    files = stream("files")
    queries = [
        files.mapInArrow(pause, files.schema)
        .writeStream.format("parquet")
        .option("path", str(folder / "files"))
        .option("checkpointLocation", str(folder / "files-checkpoint"))
        .start()
    ]

    def write(frame: Any, batch: int) -> None:
        write_batch(frame, batch, place_of(str(folder / "batches"), load_settings()))
        if dies:
            wait_for(in_task)
            os.killpg(os.getpid(), signal.SIGKILL)

    queries.append(
        stream("batches")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "batches-checkpoint"))
        .start()
    )
    with Client.from_settings(load_settings()) as client:
        until = time.monotonic() + DEADLINE
        while any(lag(client, subject, durable) for durable in ("files", "batches")):
            assert time.monotonic() < until, [query.exception() for query in queries]
            assert all(query.isActive for query in queries), [query.exception() for query in queries]
            time.sleep(0.1)
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), dies="--die" in sys.argv)
