"""Plan and read: the core of every replay, without Spark.

plan = plan_read(settings, read_options({"subject": "orders", "payload": "true"}))
for partition in plan.partitions:
    for batch in read_batches(settings, options, partition):  # Arrow
        ...
"""

from spark_emr.reader.core import plan_read, read_batches, read_blocks, read_stretches
from spark_emr.reader.options import ReadOptions, read_options
from spark_emr.reader.plan import Plan, ReadPartition

__all__ = [
    "Plan",
    "ReadOptions",
    "ReadPartition",
    "plan_read",
    "read_batches",
    "read_blocks",
    "read_options",
    "read_stretches",
]
