"""Messages as a DataFrame on any Spark from 3.5 on, by `mapInArrow`; batch only.

orders = read_messages(spark, subject="orders", fromSequence=1, payload=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, TypeVar

from minitoolstream.bootstrap import open_blocks
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from spark_emr.errors import for_tasks
from spark_emr.reader import (
    Plan,
    ReadOptions,
    ReadPartition,
    plan_read,
    read_batches,
    read_options,
    read_stretches,
)
from spark_emr.reader.columns import column_names, spark_schema
from spark_emr.reader.work import Work, check_work_options, work_on
from spark_emr.session import session_settings

T = TypeVar("T")


def read_messages(spark: Any, **options: Any) -> Any:
    """A DataFrame with the columns of the data source; options as there, in any spelling."""
    wanted = read_options({name: str(value) for name, value in options.items()})
    settings = session_settings(spark)
    plan = plan_read(settings, wanted, spark.sparkContext.defaultParallelism)
    return planned_messages(spark, settings, wanted, plan)


def planned_messages(spark: Any, settings: Settings, options: ReadOptions, plan: Plan) -> Any:
    names = column_names(options)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from read_batches(settings, options, plans.value[number], names)
                except MtsError as error:
                    raise for_tasks(error) from None

    plans = spark.sparkContext.broadcast(plan.partitions)
    count = len(plan.partitions)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(read, spark_schema(names))


def run_tasks(spark: Any, items: Iterable[T], work: Callable[[T], Any]) -> list[Any]:
    """`work(item)` for each, a task each; results in order. What a task does not return never leaves Python."""
    listed = list(items)
    if not listed:
        return []

    def guarded(item: T) -> Any:
        try:
            return work(item)
        except MtsError as error:
            raise for_tasks(error) from None

    return list(spark.sparkContext.parallelize(listed, len(listed)).map(guarded).collect())


def map_payloads(spark: Any, work: Work[T], **options: Any) -> Any:
    """An RDD of `work(message, blocks)` for each message of a range. Payloads stay in Python, and may have any size:
    `blocks` gives them piece by piece. Those that are missing or damaged are an error, or left out (`onMissing=skip`).

    Example: `map_payloads(spark, lambda message, blocks: (message.sequence, sum(map(len, blocks))), subject="videos")`
    """
    wanted = read_options({**{name: str(value) for name, value in options.items()}, "payload": "true"})
    check_work_options(wanted)
    settings = session_settings(spark)
    plan = plan_read(settings, wanted, spark.sparkContext.defaultParallelism)

    def read(partitions: Iterator[ReadPartition]) -> Iterator[T]:
        for partition in partitions:
            try:
                with closing(read_stretches(settings, wanted, partition)) as stretches:
                    yield from work_on(open_blocks(settings), wanted, stretches, work)
            except MtsError as error:
                raise for_tasks(error) from None

    return spark.sparkContext.parallelize(plan.partitions, max(len(plan.partitions), 1)).mapPartitions(read)
