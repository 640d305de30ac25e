"""PySpark in virtualenvs of our cache: it is large, and no part of what MiniToolStream itself needs."""

from __future__ import annotations

from pathlib import Path

from minitoolstream.domain.errors import MtsError
from minitoolstream.stack.commands import Update, ignore
from minitoolstream.stack.program import Program
from minitoolstream.stack.venvs import find_venv, private_venv

VERSIONS = {"4": "spark4", "3": "spark3"}
"""4 is 4.1, the newest whose companion jars are on Maven Central; 3 is 3.5, that of EMR 7."""


def get_spark(version: str = "4", *, update: Update = ignore) -> Program:
    """Its Python, with `SPARK_HOME`."""
    return _program(private_venv(VERSIONS[version], update=update))


def find_spark(version: str = "4") -> Program | None:
    """The same when it is here already."""
    venv = find_venv(VERSIONS[version])
    return _program(venv) if venv else None


def packages_of(spark: Program) -> Path:
    """The folder to put on Python's path, behind one's own packages, to import pyspark."""
    return Path(spark.environ["SPARK_HOME"]).parent


def _program(venv: Path) -> Program:
    for home in venv.glob("lib/python*/site-packages/pyspark"):
        return Program(venv / "bin" / "python", "from PyPI, in our cache", {"SPARK_HOME": str(home)})
    raise MtsError("dependency_missing", f"{venv} holds no pyspark: remove it and try again")
