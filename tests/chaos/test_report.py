"""The table of `make chaos`: what it shows, and when a run has failed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.report import Summary


def kept() -> Summary:
    recoveries = {"host": [1.0, 3.0], "MinIO": [2.0]}
    return Summary(7, recoveries, Counter(host=3, MinIO=1), acknowledged=1234, verdicts=["clean", "clean"], seconds=65)


def test_a_run_that_kept_every_promise_says_so() -> None:
    summary = kept()
    assert summary.promises_kept()
    lines = [line.split() for line in summary.table().splitlines()]
    assert ["host", "2", "3", "2.0", "s", "3.0", "s"] in lines
    assert ["all", "3", "4", "2.0", "s", "3.0", "s"] in lines
    assert ["acknowledged", "1,234"] in lines
    assert lines[6:10] == [["lost", "0"], ["doubled", "0"], ["reordered", "0"], ["left", "over", "0"]]
    assert summary.table().endswith("seed 7, 1:05 minutes: every promise was kept")


@pytest.mark.parametrize("kind", ["lost", "doubled", "reordered", "left_over", "problems"])
def test_one_fault_of_any_kind_is_a_broken_promise_and_is_shown(kind: str) -> None:
    summary = kept()
    getattr(summary, kind).append("key-7 is not there")
    assert not summary.promises_kept()
    assert "key-7 is not there" in summary.table()
    assert "A PROMISE WAS BROKEN" in summary.table()


@pytest.mark.parametrize("verdicts", [[], ["clean", "faults"], ["repaired"]])
def test_a_check_that_is_not_clean_or_was_not_made_is_a_broken_promise(verdicts: list[str]) -> None:
    summary = kept()
    summary.verdicts = verdicts
    assert not summary.promises_kept()
