"""Spark's own reader and writer on our Parquet, over S3A. Submitted by `scripts.spark_cluster`; needs pyspark alone.

s3a_job.py <s3a://bucket/folder of a step's output> <s3a://bucket/folder to write>
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(source: str, target: str) -> None:
    spark = SparkSession.builder.appName("s3a").getOrCreate()
    manifest = json.loads(spark.sparkContext.wholeTextFiles(f"{source}/_manifest.json").values().first())
    frame = spark.read.parquet(*(f"{source}/{file['name']}" for file in manifest["files"]))
    frame.select("sequence", "payload").write.parquet(target)
    success = json.loads(spark.sparkContext.wholeTextFiles(f"{target}/_SUCCESS").values().first())
    told = {"rows": frame.count(), "written": spark.read.parquet(target).count(), "committer": success["committer"]}
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
