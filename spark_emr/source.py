"""The data source `minitoolstream` of Spark 4: batch and stream. Spark 3.5 has `spark_emr.frames` instead.

    register(spark)
    spark.read.format("minitoolstream").option("subject", "orders").option("payload", "true").load()

Filters are not pushed down: Spark (4.1 to 4.3) keeps those of one query for the next of the same DataFrame. Say
`fromSequence`, `toSequence`, `fromTime`, `toTime` or `partition` instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError, bad_request
from spark_emr.errors import for_tasks
from spark_emr.following import Follower
from spark_emr.reader import ReadOptions, ReadPartition, plan_read, read_batches, read_options
from spark_emr.reader.columns import column_names, known_columns, spark_schema
from spark_emr.session import session_settings

NAME = "minitoolstream"


def register(spark: Any) -> None:
    """Make `format("minitoolstream")` known to a session. Addresses and secrets come from the environment or from
    Spark's conf (`spark.minitoolstream.minio.secret.key`), are read now, and travel to tasks unseen."""
    found = {"settings": session_settings(spark), "parallelism": spark.sparkContext.defaultParallelism}
    # A class that no module knows is sent to Spark's other processes as it is, with what it holds.
    spark.dataSource.register(type("RegisteredMessages", (Messages,), found))


class _Partition(InputPartition):
    def __init__(self, value: ReadPartition) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"_Partition({self.value.first_sequence}..{self.value.last_sequence})"


class Messages(DataSource):
    """Messages of one subject. Registered as it is, it reads the environment of Spark's Python processes."""

    settings: ClassVar[Settings | None] = None
    parallelism: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return spark_schema(column_names(self._options()))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._settings(), self._options(), _columns(schema), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._settings(), self._options(), _columns(schema), self.parallelism)

    def _options(self) -> ReadOptions:
        try:
            return read_options(dict(self.options))
        except MtsError as error:
            raise for_tasks(error) from None

    def _settings(self) -> Settings:
        return type(self).settings or load_settings()


def _columns(schema: StructType) -> tuple[str, ...]:
    """Those of the schema, which a user may have given to leave some out."""
    names = tuple(schema.fieldNames())
    unknown = set(names) - set(known_columns())
    if unknown:
        error = bad_request(f"there is no column {', '.join(sorted(unknown))}; there are {', '.join(known_columns())}")
        raise for_tasks(error)
    return names


class _Reads:
    """What both readers do: plan on the driver, read in tasks."""

    def __init__(self, settings: Settings, options: ReadOptions, columns: tuple[str, ...], parallelism: int) -> None:
        self._settings = settings
        self._options = options
        self._columns = columns
        self._parallelism = parallelism

    def _planned(self, options: ReadOptions) -> list[InputPartition]:
        try:
            plan = plan_read(self._settings, options, self._parallelism)
        except MtsError as error:
            raise for_tasks(error) from None
        return [_Partition(partition) for partition in plan.partitions]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if not isinstance(partition, _Partition):  # Spark's word for "no partitions"
            return
        try:
            yield from read_batches(self._settings, self._options, partition.value, self._columns)
        except MtsError as error:
            raise for_tasks(error) from None


class _Reader(_Reads, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self._planned(self._options)


class _StreamReader(_Reads, DataSourceStreamReader):
    """Offsets are `{"sequence": n}`: everything up to n was read."""

    def __init__(self, settings: Settings, options: ReadOptions, columns: tuple[str, ...], parallelism: int) -> None:
        super().__init__(settings, options, columns, parallelism)
        self._follower = Follower(settings, options)

    def initialOffset(self) -> dict[str, int]:
        return {"sequence": self._follower.begin()}

    def latestOffset(self) -> dict[str, int]:
        return {"sequence": self._follower.latest()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        options = self._follower.between(start["sequence"], end["sequence"])
        return self._planned(options) if options else []

    def commit(self, end: dict[str, int]) -> None:
        self._follower.commit(end["sequence"])
