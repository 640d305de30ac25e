"""What every step shares: arguments, one JSON summary as the last line of stdout, exit codes, a manifest.

    STEP = Step("verify", "Check the payloads of a range.", arguments, work)

    if __name__ == "__main__":
        sys.exit(main(STEP))

`arguments(parser)` adds what the step takes; `work(run)` does it and returns the numbers of the summary. It raises
`NoData` when there was nothing to do, `VerificationFailed` when something is not what it should be, and `MtsError` for
everything a user can act on. Secrets are no arguments, since process lists show those: they come from the environment
(`MTS_MINIO_SECRET_KEY`) or from Spark's conf (`spark.minitoolstream.minio.secret.key`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, NoReturn

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.pipeline.places import Place, place_of
from spark_emr.session import open_session, session_settings


class Exit(IntEnum):
    """Exit codes; `spark-submit` in client mode passes them on."""

    DONE = 0
    UNCAUGHT = 1
    BAD_ARGUMENTS = 2
    NO_DATA = 3
    VERIFICATION_FAILED = 4
    DEPENDENCY_DOWN = 5


class NoData(Exception):  # noqa: N818 - says what happened
    """There is nothing to do: no such messages, an empty queue. `summary` is told nevertheless."""

    def __init__(self, message: str, **summary: Any) -> None:
        super().__init__(message)
        self.summary = summary


class VerificationFailed(Exception):  # noqa: N818
    """Something is not what it should be; `summary` says what."""

    def __init__(self, message: str, **summary: Any) -> None:
        super().__init__(message)
        self.summary = summary


_TRY_AGAIN = frozenset(
    {"unavailable", "unreachable", "timeout", "request_timeout", "overloaded", "rate_limited", "database_unavailable"}
    | {"producer_fenced"}  # by another run of the same replay, which may have ended by then
)
DAMAGED = frozenset({"checksum_mismatch", "payload_missing", "payload_gone", "size_mismatch"})


def exit_code(error: BaseException) -> Exit:
    """What an error means to whoever runs the step."""
    if isinstance(error, NoData):
        return Exit.NO_DATA
    if isinstance(error, VerificationFailed):
        return Exit.VERIFICATION_FAILED
    if isinstance(error, MtsError) and error.code != "internal":
        if error.code in DAMAGED:
            return Exit.VERIFICATION_FAILED
        return Exit.DEPENDENCY_DOWN if error.code in _TRY_AGAIN or error.retryable else Exit.BAD_ARGUMENTS
    return Exit.UNCAUGHT


@dataclass
class Manifest:
    """What a run has read and written, for `--manifest` and for whoever repeats it."""

    read: list[Mapping[str, Any]] = field(default_factory=list)
    wrote: list[Mapping[str, Any]] = field(default_factory=list)

    def add_read(self, **facts: Any) -> None:
        """Example: `run.manifest.add_read(subject="orders", first_sequence=1, last_sequence=9, messages=9)`"""
        self.read.append(facts)

    def add_wrote(self, **facts: Any) -> None:
        """Example: `run.manifest.add_wrote(url="s3://b/out/part-1.parquet", bytes=4711, rows=9)`"""
        self.wrote.append(facts)


@dataclass
class Run:
    """One run of a step: `args` as parsed, `id` unique, `manifest` to fill."""

    step: Step
    args: argparse.Namespace
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    manifest: Manifest = field(default_factory=Manifest)
    started: float = field(default_factory=time.time)
    _owns_session: bool = False

    @cached_property
    def settings(self) -> Settings:
        """From the environment, `mts.yaml` and, in a Spark application, its conf; read once."""
        return session_settings(None if not self.step.uses_spark else self.spark)

    @cached_property
    def spark(self) -> Any:
        """The application's SparkSession: the one that runs in this process, else started on first use."""
        found, self._owns_session = open_session(f"mts-{self.step.name}")
        return found

    def close(self) -> None:
        """End the session, if this run has started it."""
        if self._owns_session:
            self.spark.stop()

    def place(self, url: str) -> Place:
        """A folder or `s3://bucket/prefix` to read from and write to."""
        return place_of(url, self.settings)

    def log(self, message: str, **facts: Any) -> None:
        """A JSON line on stderr; stdout is for the summary."""
        _line(sys.stderr, {"step": self.step.name, "run": self.id, "message": message, **facts})


@dataclass(frozen=True)
class Step:
    """`uses_spark` False: settings come without a Spark session, and none is started."""

    name: str
    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    work: Callable[[Run], Mapping[str, Any]]
    uses_spark: bool = True


class _Parser(argparse.ArgumentParser):
    """Wrong arguments end with a summary too."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise MtsError("bad_request", message)


def main(step: Step, arguments: Sequence[str] | None = None) -> int:
    """Parse, work, tell; returns the exit code."""
    parser = _Parser(prog=step.name, description=step.about)
    parser.add_argument("--manifest", metavar="URL", help="write the manifest here too: a file or s3://bucket/key")
    step.arguments(parser)
    run: Run | None = None
    summary: dict[str, Any] = {}
    problem: BaseException | None = None
    try:
        run = Run(step, parser.parse_args(arguments))
        summary = dict(step.work(run))
    except Exception as error:  # told below, whatever it is
        problem = spark_cause(error)
        summary = dict(getattr(problem, "summary", {}))
    code = Exit.DONE if problem is None else exit_code(problem)
    told = _told(step, run, summary, problem, code)
    if run is not None and run.args.manifest:
        written = _write_manifest(run, told)
        if written is not None and code is Exit.DONE:
            code = exit_code(written)
            told.update(exit_code=int(code), state=code.name.lower(), error=_error(written))
    _line(sys.stdout, told)
    if run is not None:
        run.close()
    return int(code)


def spark_cause(error: BaseException) -> BaseException:
    """The MtsError inside what Spark made of it: tasks and data sources run in other processes, and only the text of
    their traceback comes back."""
    from spark_emr.errors import from_traceback

    if isinstance(error, MtsError | NoData | VerificationFailed):
        return error
    return from_traceback(str(error)) or error


def _told(
    step: Step, run: Run | None, summary: Mapping[str, Any], problem: BaseException | None, code: Exit
) -> dict[str, Any]:
    started = run.started if run else time.time()
    told: dict[str, Any] = {
        "step": step.name,
        "run": run.id if run else None,
        "state": code.name.lower(),
        "exit_code": int(code),
        "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 3),
        "summary": dict(summary),
    }
    if run is not None:
        told["read"], told["wrote"] = run.manifest.read, run.manifest.wrote
    if problem is not None:
        told["error"] = _error(problem)
        if code is Exit.UNCAUGHT:
            traceback.print_exception(problem, file=sys.stderr)
    return told


def _error(problem: BaseException) -> dict[str, Any]:
    if isinstance(problem, MtsError):
        return {"code": problem.code, "message": problem.message, "details": problem.details}
    codes: dict[type[BaseException], str] = {NoData: "no_data", VerificationFailed: "verification_failed"}
    return {"code": codes.get(type(problem), "uncaught"), "message": str(problem).strip().split("\n", 1)[0][:2000]}


def _write_manifest(run: Run, told: Mapping[str, Any]) -> MtsError | None:
    folder, _, name = str(run.args.manifest).rpartition("/")
    body = json.dumps(told, indent=1, default=str).encode()
    try:
        run.place(folder or ".").put_new(name, body, "application/json")
    except MtsError as error:
        return error
    return None


def _line(stream: Any, told: Mapping[str, Any]) -> None:
    print(json.dumps(told, default=str, separators=(",", ":")), file=stream, flush=True)
