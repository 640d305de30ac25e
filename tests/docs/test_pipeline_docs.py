"""The page on the tracked pipeline: its commands work, its table of transitions is what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.domain import tracking
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.tracking import Claim, StageState, Task
from minitoolstream.host.functions import load_functions
from minitoolstream.pipeline.events import Event
from tests.docs.test_docs import ROOT, blocks, run
from tests.live import Live

PAGE = (ROOT / "docs/pipeline.md").read_text("utf-8")
NOW = datetime(2025, 1, 1, tzinfo=UTC)
STAGE = "shard-worker"


def test_the_commands_of_the_page_on_the_pipeline_work(own_pipeline: Live, tmp_path: Path) -> None:
    first, calls = blocks("sh", PAGE)
    live = own_pipeline
    shown = run(first, live, tmp_path, "bash", "-euc")
    assert re.search(r"mysql-sender +2 +0 +0", shown)
    assert re.search(r"20250101000000 +2 +done +done +done +done", shown)
    assert shown.count('"messages":2') == 3
    shown = run(f'url={live.url}\nauth="Authorization: Bearer {live.token}"\n{calls}', live, tmp_path, "bash", "-euc")
    assert '"created":true' in shown
    assert '"stage":"shard-splitter","status":"done"' in shown


def test_the_pages_function_gives_rows() -> None:
    space: dict[str, Any] = {}
    exec("".join(blocks("python", PAGE)), space)
    event = Event(1, "orders", 0, 0, 0, "text/plain", {}, text="x")
    assert space["by_type"]([("a", event), ("b", event)]) == [{"key": "text/plain", "messages": 2}]


def test_the_page_names_every_call() -> None:
    named = set(re.findall(r"`(?:GET|POST) (/api/v1/pipeline/[^`]*)`", PAGE))
    paths = {route.path for name, route in load_functions().routes if name == "pipeline"}
    assert {path.replace("{start, done, fail}", "{transition}") for path in named} == paths


def table() -> list[list[str]]:
    rows = PAGE.partition("| status | `start`")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def task_in(state: str) -> Task:
    """What the first column says."""
    status = state.split("`")[1]
    before = "started" if "before is not done" in state else "done"
    lease = NOW - timedelta(seconds=1) if "ended" in state else NOW + timedelta(seconds=60)
    stages = (StageState("done"), StageState(before), StageState(status), StageState())
    running = status == "started"
    return Task("f", 0, stages, NOW, NOW, "owner" if running else None, lease if running else None)


def outcome(task: Task, transition: str, owner: str) -> str:
    decide = {
        "start": tracking.start(STAGE, Claim(owner, 60)),
        "done": tracking.finish(STAGE, "owner"),
        "fail": tracking.fail(STAGE, "owner", None),
        "retry": tracking.retry(STAGE),
    }[transition]
    try:
        after = decide(task, NOW)
    except MtsError as error:
        return {"stage_conflict": "409"}[error.code]
    return "200, unchanged" if after is task else f"`{after.of(STAGE).status}`"


@pytest.mark.parametrize("row", table(), ids=lambda row: row[0])
def test_the_table_of_transitions_is_what_the_code_does(row: list[str]) -> None:
    task = task_in(row[0])
    for cell, transition in zip(row[1:], ("start", "done", "fail", "retry"), strict=True):
        if "others" in cell:
            assert outcome(task, transition, "other") == "409"
            assert outcome(task, transition, "owner") == "`started`"
        else:
            assert outcome(task, transition, "other") == cell.partition(", by")[0]
