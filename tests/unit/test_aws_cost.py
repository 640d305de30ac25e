"""What a month on AWS costs: sums that can be done by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from minitoolstream.aws.cost import Line, Use, costs_of, load_prices
from minitoolstream.cli.main import cli
from minitoolstream.domain.errors import MtsError

PRICES = load_prices()


def line(lines: list[Line], what: str) -> Line:
    return next(one for one in lines if one.what == what)


def test_a_million_messages_by_ticket() -> None:
    lines = costs_of(Use(1_000_000, 10_000, "ticket", reads=1, days=30.4), PRICES)
    assert line(lines, "S3 PUTs").dollars == pytest.approx(5.0)
    assert line(lines, "S3 GETs").dollars == pytest.approx(0.4)
    assert line(lines, "S3 storage, GB-months").dollars == pytest.approx(10 * 0.023)
    assert line(lines, "API Gateway requests").dollars == pytest.approx(2.01 * 3.5)


def test_batches_cost_a_thousandth_of_the_requests() -> None:
    single = costs_of(Use(1_000_000, 1_000, "inline", reads=0, days=1), PRICES)
    batched = costs_of(Use(1_000_000, 1_000, "batch", reads=0, days=1), PRICES)
    for what in ("S3 PUTs", "API Gateway requests"):
        assert line(batched, what).dollars == pytest.approx(line(single, what).dollars / 1000)


def test_a_batch_is_not_larger_than_what_lambda_takes() -> None:
    lines = costs_of(Use(1_000_000, 100_000, "batch", reads=1, days=1), PRICES)
    assert line(lines, "S3 PUTs").quantity == f"{1_000_000 / 41:,.0f}"
    assert line(lines, "S3 GETs").quantity == f"{1_000_000 / 41:,.0f}"


def test_a_payload_in_parts_pays_for_each_of_them() -> None:
    """64 parts of a GiB, begun, listed and completed; its ticket and its completion."""
    lines = costs_of(Use(1000, 2**30, "ticket", reads=0, days=1), PRICES)
    assert line(lines, "S3 PUTs").quantity == "67,000"
    assert line(lines, "API Gateway requests").quantity == "2,000"
    assert line(lines, "SQS requests").quantity == "2,200"


@pytest.mark.parametrize("way", ["inline", "batch"])
def test_what_no_request_can_carry_is_refused(way: str) -> None:
    done = CliRunner().invoke(cli, ["cost", "--way", way, "--size", "5MiB"])
    assert done.exit_code == 2
    assert "by ticket alone" in done.stderr


@pytest.mark.parametrize("wrong", [("--reads", "nan"), ("--days", "inf"), ("--size", "60TiB")])
def test_what_cannot_be_counted_is_refused(wrong: tuple[str, str]) -> None:
    assert CliRunner().invoke(cli, ["cost", *wrong]).exit_code == 2


def test_a_price_below_nothing_is_refused(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({**PRICES.shown(), "s3_put_per_1000": -1}))
    done = CliRunner().invoke(cli, ["cost", "--prices", str(prices)])
    assert done.exit_code == 2
    assert "s3_put_per_1000" in done.stderr


def test_events_are_paid_for_only_where_there_are_some() -> None:
    assert line(costs_of(Use(1000, 1, "inline", 0, 1), PRICES), "SQS requests").dollars == 0


def test_readers_outside_pay_for_what_leaves() -> None:
    lines = costs_of(Use(1000, 10**9, "ticket", reads=2, days=0, outside=True), PRICES)
    assert line(lines, "transfer out, GB").dollars == pytest.approx(2000 * 0.09)


def test_the_machines_cost_the_same_without_a_message() -> None:
    fixed = [[one.dollars for one in costs_of(Use(n, 1, "ticket", 1, 1), PRICES) if one.fixed] for n in (1, 10**9)]
    assert fixed[0] == fixed[1]
    assert sum(fixed[0]) > 0


def mts(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["cost", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_tells_the_date_of_its_prices() -> None:
    assert f"prices of {PRICES.region}, {PRICES.date}" in mts()
    assert "$ a TB" in mts("--size", "1GiB", "--messages", "1000")


@pytest.mark.parametrize("messages", [1_000_000, 20_000_000])
def test_a_million_messages_cost_the_same_in_any_month(messages: int) -> None:
    """What is paid for use, by messages; machines do not count."""
    told = json.loads(mts("--messages", str(messages), "--size", "10000", "--json"))
    used = [one for one in costs_of(Use(1_000_000, 10_000, "ticket", reads=1, days=1), PRICES) if not one.fixed]
    assert told["per_million_messages"] == pytest.approx(sum(one.dollars for one in used), abs=0.01)
    assert told["per_terabyte"] == pytest.approx(100 * told["per_million_messages"], abs=1)  # a million are 10 GB
    assert f" {told['per_million_messages']:.2f} $ a million messages" in mts("--size", "10000")


def test_prices_of_ones_own_are_used(tmp_path: Path) -> None:
    mine = json.loads(mts("--show-prices")) | {"s3_put_per_1000": 50.0, "date": "2030-01"}
    (tmp_path / "mine.json").write_text(json.dumps(mine))
    told = json.loads(mts("--prices", str(tmp_path / "mine.json"), "--json"))
    assert told["prices"]["date"] == "2030-01"
    assert next(one for one in told["lines"] if one["what"] == "S3 PUTs")["dollars"] == pytest.approx(50_000)


@pytest.mark.parametrize("content", [None, "{", json.dumps({"date": "2030"})])
def test_a_file_that_is_no_list_of_prices_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "prices.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(MtsError, match=r"prices\.json"):
        load_prices(file)
