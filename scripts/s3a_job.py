"""Spark's own reader and writer on our Parquet, over S3A. Submitted by `scripts.spark_cluster`; needs pyspark alone.

s3a_job.py <s3a://bucket/folder to write> <s3a://bucket/file of a manifest> ...
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(target: str, files: list[str]) -> None:
    spark = SparkSession.builder.appName("s3a").getOrCreate()
    frame = spark.read.parquet(*files)
    frame.select("sequence", "payload").write.parquet(target)
    print(json.dumps({"rows": frame.count(), "written": spark.read.parquet(target).count()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
