"""What `spark-submit` is given: runs a step from the archive, never from a checkout. Needs nothing but pyspark itself.

    spark-submit --archives minitoolstream-spark.tar.gz#mts run_step.py verify --subject orders

The archive lies unpacked as `mts` where a task runs. Where the driver runs outside of the cluster, it is unpacked there
by Spark, too, or lies beside this file.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = "mts"
_STEP = re.compile(r"[a-z][a-z_]*\Z")


def find_packages(sent: Path) -> Path:
    """The unpacked archive: in the working directory, as in YARN's cluster mode; where Spark unpacks what is sent
    along; or unpacked now from beside this file."""
    for folder in (Path(FOLDER).absolute(), sent / FOLDER):
        if (folder / "spark_emr").is_dir():
            return folder
    for archive in sorted(Path(__file__).absolute().parent.glob("minitoolstream-spark*.tar.gz")):
        folder = Path(tempfile.mkdtemp(prefix="mts-spark-"))
        with tarfile.open(archive) as opened:
            # Debian's Python 3.11.2 has no filters; the archive is our own.
            opened.extraction_filter = getattr(tarfile, "data_filter", None)
            opened.extractall(folder)  # noqa: S202 # nosec B202
        return folder
    raise FileNotFoundError(f"the archive is not there as {FOLDER}: --archives minitoolstream-spark.tar.gz#{FOLDER}")


def main(arguments: list[str]) -> int:
    if not arguments or not _STEP.match(arguments[0]):
        print("usage: run_step.py STEP [arguments]; each STEP has a --help", file=sys.stderr)  # noqa: T201
        return 2
    from pyspark import SparkFiles
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"mts-{arguments[0]}").getOrCreate()
    try:
        context = spark.sparkContext
        packages = find_packages(Path(SparkFiles.getRootDirectory()))
        sys.path.insert(0, str(packages))
        # Tasks run where their executor has unpacked it; with a local master there is no such place.
        for_tasks = str(packages) if context.master.startswith("local") else FOLDER
        known = context.environment.get("PYTHONPATH")
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [for_tasks, known]))
        try:
            module = importlib.import_module(f"spark_emr.steps.{arguments[0]}")
        except ModuleNotFoundError as error:
            print(f"there is no step {arguments[0]}: {error}", file=sys.stderr)  # noqa: T201
            return 2
        from spark_emr.steps._step import main as run

        return run(module.STEP, arguments[1:])
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
