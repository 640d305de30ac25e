"""The tables of `make bench`."""

from __future__ import annotations

import pytest

from bench import report
from bench.errors import BenchError
from bench.generator import LoadResult
from bench.rows import Floor, Row
from bench.scenarios.grpc import error_rate

RUN = report.Run(
    {"machine": "2 cores"},
    [
        Row("a", "as fast as alone", "alone", 0.9, Floor(0.75), rounds=[0.8, 0.9, 1.0]),
        Row("b", "too slow", "select", 0.1, Floor(0.2)),
        Row("c", "latency", "ms", 3.0, Floor(2.0, at_most=True)),
        Row("d", "broken", "n", failed="not measured: a | b"),
    ],
    [],
)


def test_a_table_says_of_every_floor_whether_it_is_met() -> None:
    lines = report.speed_table(RUN).splitlines()[2:]
    assert [line.split(" | ")[3] for line in lines] == ["met", "**not met**", "**not met**", "not measured"]
    assert [line.split(" | ")[1] for line in lines[:3]] == ["**0.9** x alone", "**0.1** x select", "**3** ms"]


def test_a_load_with_a_failed_operation_is_no_measurement() -> None:
    result = LoadResult(10, 9, 1.0, 9.0, {"201": 9, "503": 1}, {}, {}, [], 0, 0, 0.0, captured=['{"error":{}}'])
    with pytest.raises(BenchError, match="9 of 10"):
        result.must_have_succeeded(10)


@pytest.mark.parametrize(("succeeded", "value", "verdict"), [(10_000, 0.0, "met"), (9_980, 0.2, "**not met**")])
def test_an_error_rate_is_of_all_calls_that_were_begun(succeeded: int, value: float, verdict: str) -> None:
    row = error_rate(LoadResult(10_000, succeeded, 10.0, 1000.0, {}, {}, {}, [], 0, 0, 0.0), 1000)
    assert (row.value, row.verdict) == (value, verdict)
