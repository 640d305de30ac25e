"""What every step shares, without Spark."""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError
from spark_emr.errors import for_tasks, from_traceback
from spark_emr.reader import ReadOptions
from spark_emr.steps import stats
from spark_emr.steps._step import Exit, NoData, Run, Step, VerificationFailed, main


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1)


def step(outcome: Mapping[str, Any] | Exception) -> Step:
    def work(run: Run) -> Mapping[str, Any]:
        run.manifest.add_read(subject="orders", messages=run.args.count)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Step("test-step", "For tests.", arguments, work, uses_spark=False)


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_step_ends_with_its_summary_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(step({"messages": 3}), ["--count", "3"]) == 0
    summary = told(capsys)
    assert (summary["state"], summary["exit_code"], summary["summary"]) == ("done", 0, {"messages": 3})
    assert summary["read"] == [{"subject": "orders", "messages": 3}]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("a defect"), Exit.UNCAUGHT),
        (MtsError("internal", "a defect of the host"), Exit.UNCAUGHT),
        (MtsError("bad_request", "from > to"), Exit.BAD_ARGUMENTS),
        (MtsError("cannot_write", "the folder may not be written"), Exit.BAD_ARGUMENTS),
        (MtsError("too_large", "the other subject takes no such payload"), Exit.BAD_ARGUMENTS),
        (MtsError("quota_exceeded", "the other subject is full"), Exit.BAD_ARGUMENTS),
        (NoData("nothing there"), Exit.NO_DATA),
        (VerificationFailed("one is damaged"), Exit.VERIFICATION_FAILED),
        (MtsError("checksum_mismatch", "message 7 is damaged"), Exit.VERIFICATION_FAILED),
        (MtsError("unavailable", "the store is away"), Exit.DEPENDENCY_DOWN),
        (MtsError("producer_fenced", "another run goes on with it"), Exit.DEPENDENCY_DOWN),
        (MtsError("unreachable", "the host is away", retryable=True), Exit.DEPENDENCY_DOWN),
    ],
)
def test_the_exit_code_says_what_kind_of_failure_it_was(
    error: Exception, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(step(error), []) == code
    summary = told(capsys)
    assert summary["exit_code"] == code
    assert str(error) in summary["error"]["message"]


def test_wrong_arguments_end_with_a_summary_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(step({}), ["--count", "many"]) == Exit.BAD_ARGUMENTS
    assert "--count" in told(capsys)["error"]["message"]


def test_help_says_what_a_step_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(step({}), ["--help"])
    assert ended.value.code == 0
    assert "--count" in capsys.readouterr().out


def test_the_manifest_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--manifest", str(tmp_path / "run.json")]
    assert main(step({"messages": 1}), wanted) == 0
    assert json.loads((tmp_path / "run.json").read_text())["read"] == [{"subject": "orders", "messages": 1}]
    assert main(step({"messages": 1}), wanted) == Exit.BAD_ARGUMENTS
    assert told(capsys)["error"]["code"] == "already_exists"


def test_an_error_of_a_task_is_known_again_by_the_text_of_its_traceback() -> None:
    error = for_tasks(MtsError("checksum_mismatch", "message 7 is damaged"), sequence=7)
    text = f"org.apache.spark.SparkException: ...\nTraceback ...\n{type(error).__name__}: {error}\n\n\tat java..."
    found = from_traceback(text)
    assert found is not None
    assert (found.code, found.message, found.details) == ("checksum_mismatch", "message 7 is damaged", {"sequence": 7})
    assert from_traceback("java.lang.OutOfMemoryError") is None


async def test_stats_of_all_subjects_do_not_end_at_one_that_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def make_plan(_core: Any, options: ReadOptions, _parallelism: int) -> str:
        if options.subject == "gone":
            raise MtsError("unknown_subject", "there is no such subject")
        return f"plan of {options.subject}"

    async def subjects(_after: str, _limit: int) -> tuple[list[dict[str, str]], bool]:
        return [{"subject": "gone"}, {"subject": "orders"}], False

    monkeypatch.setattr(stats, "make_plan", make_plan)
    core: Any = SimpleNamespace(metadata=SimpleNamespace(subjects=subjects))
    planned = await stats.plan_all(core, Namespace(subject=None), 1)
    assert [options.subject for options, _ in planned] == ["orders"]
    planned = await stats.plan_all(core, Namespace(subject=["orders", "orders"]), 1)
    assert [options.subject for options, _ in planned] == ["orders"]
    with pytest.raises(MtsError):
        await stats.plan_all(core, Namespace(subject=["gone"]), 1)
