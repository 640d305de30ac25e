"""`mts pipeline` as a user types it, and the daemons as steps, on real servers with SQLite behind the API."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minitoolstream.cli.main import cli
from minitoolstream.client import Client, Item, MtsError
from spark_emr.steps import event_ingest, mysql_sender, shard_splitter, shard_worker
from spark_emr.steps._step import Step, main
from tests.live import Live


class Mts:
    def __init__(self, live: Live, folder: Path) -> None:
        self.folder = folder
        shards = ",".join(f"{shard}=sqlite:{folder}/shard-{shard}.db" for shard in (0, 1))
        self.environ = {
            **live.environ,
            "MTS_URL": live.url,
            "MTS_HOME": str(folder / "home"),
            "MTS_PIPELINE_SHARDS": shards,
            "MTS_PIPELINE_FILES": f"s3://{live.minio.bucket}/pipeline",
        }

    def __call__(self, *arguments: str, **environ: str) -> Result:
        command = ["pipeline", *arguments]
        return CliRunner().invoke(cli, command, env=self.environ | environ, prog_name="mts")

    def text(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.exit_code == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def rows(self) -> list[Any]:
        found = []
        for shard in (0, 1):
            with sqlite3.connect(self.folder / f"shard-{shard}.db") as database:
                found += database.execute("SELECT filename, shard, item_key, value FROM pipeline_result").fetchall()
        return found


@pytest.fixture
def mts(own_pipeline: Live, tmp_path: Path) -> Mts:
    return Mts(own_pipeline, tmp_path)


@pytest.fixture
def orders(own_pipeline: Live, subject: str) -> Iterator[str]:
    with Client(own_pipeline.url, own_pipeline.token) as client:
        items = [Item(f"{number}", headers={"key": f"k{number % 5}"}) for number in range(50)]
        assert all(result.ok for result in client.publish_batch(subject, items))
        yield subject


def test_a_run_takes_a_subject_to_its_shards(mts: Mts, orders: str) -> None:
    done = mts.json("run", "--subject", orders, "--filename", "run-1")
    assert (done["event-ingest"]["filename"], done["event-ingest"]["messages"]) == ("run-1", 50)
    assert [done[stage]["done"] for stage in ("shard-splitter", "shard-worker", "mysql-sender")] == [2, 2, 2]
    assert sorted(row[2] for row in mts.rows()) == ["k0", "k1", "k2", "k3", "k4"]
    assert sum(json.loads(row[3])["messages"] for row in mts.rows()) == 50

    again = mts.json("run", "--subject", orders, "--filename", "run-1")
    assert again["event-ingest"]["messages"] is None
    assert again["mysql-sender"]["tasks"] == []
    assert "run-1: already there" in mts.text("run", "--subject", orders, "--filename", "run-1")


def test_status_shows_files_by_stages(mts: Mts, orders: str) -> None:
    mts.text("run", "--subject", orders, "--filename", "status-1")
    head, *rows = mts.text("status", "--limit", "1000").splitlines()
    assert head.split() == [
        "FILE",
        "SHARDS",
        "EVENT-INGEST",
        "SHARD-SPLITTER",
        "SHARD-WORKER",
        "MYSQL-SENDER",
        "UPDATED",
    ]
    row = next(row for row in rows if row.startswith("status-1"))
    assert row.split()[:6] == ["status-1", "2", "done", "done", "done", "done"]
    shards = mts.json("status", "status-1")["shards"]
    assert [shard["attempts"]["mysql-sender"] for shard in shards] == [1, 1]
    assert mts("status", "nothing").exit_code == 3
    assert mts("status", "a/b").exit_code == 2


def test_what_failed_is_shown_and_tried_again(mts: Mts, orders: str) -> None:
    one = f"0=sqlite:{mts.folder}/shard-0.db"
    done = mts("run", "--subject", orders, "--filename", "retry-1", MTS_PIPELINE_SHARDS=one)
    assert done.exit_code == 4
    assert "mts pipeline retry retry-1" in done.stderr
    shown = mts.text("status", "retry-1")
    assert (
        "shard 1, mysql-sender: unknown_shard: shard 1 has no database: MTS_PIPELINE_SHARDS names those of 0" in shown
    )
    assert "failed" in mts.text("status")

    assert mts("retry", "retry-1", "--shard", "7").exit_code == 3
    assert mts("retry", "retry-1", "--stage", "shard-worker").exit_code == 3
    retried = mts.json("retry", "retry-1")["retried"]
    assert {"stage": "mysql-sender", "shard": 1} in retried
    assert mts("retry", "retry-1").exit_code == 3
    again = mts.json("run")
    assert again["mysql-sender"]["failed"] == 0
    assert {row[0] for row in mts.rows()} == {"retry-1"}


def test_a_run_without_anything_to_do_says_so(mts: Mts, subject: str) -> None:
    assert mts("run").exit_code == 3
    unknown = mts("run", "--subject", subject, "--window", "1h")
    assert (unknown.exit_code, f"there is no subject {subject}" in unknown.stderr) == (3, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--subject", "a b"),
        ("--subject", "orders", "--key", "id"),
        ("--subject", "orders", "--from", "5", "--to", "4"),
        ("--subject", "orders", "--from", "5", "--window", "1h"),
        ("--window", "1h"),
        ("--filename", "20250101000000"),
        ("--function", "no.such:thing"),
        ("--files", "s3://minitoolstream/_mts/x"),
        ("--files", "ftp://x/y"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(mts: Mts, wrong: tuple[str, ...]) -> None:
    done = mts("run", *wrong)
    assert done.exit_code == 2, done.stdout + done.stderr


def test_a_daemon_of_ones_own_uses_the_sdk(own_pipeline: Live) -> None:
    with Client(own_pipeline.url, own_pipeline.token) as client:
        pipeline = client.pipeline
        assert pipeline.register("sdk-1", [0, 1])
        assert not pipeline.register("sdk-1", [0, 1])
        assert pipeline.finish_ingest("sdk-1") == 2
        waiting = [item for item in pipeline.queue("shard-splitter", limit=1000) if item.filename == "sdk-1"]
        assert [item.shard for item in waiting] == [0, 1]
        started = pipeline.start("shard-splitter", "sdk-1", 0, owner="me", lease=30)
        assert (started.status, started.owner, started.attempts) == ("started", "me", 1)
        with pytest.raises(MtsError) as caught:
            pipeline.start("shard-splitter", "sdk-1", 0, owner="you")
        assert (caught.value.code, caught.value.details["owner"]) == ("stage_conflict", "me")
        pipeline.fail("shard-splitter", "sdk-1", 0, owner="me", error="no room")
        assert pipeline.file("sdk-1").shards[0].errors == {"shard-splitter": "no room"}
        pipeline.retry("shard-splitter", "sdk-1", 0)
        taken = pipeline.claim("shard-splitter", owner="me", limit=1000, lease=60)
        assert {(item.filename, item.owner) for item in taken} == {("sdk-1", "me")}
        for item in taken:
            pipeline.done("shard-splitter", item.filename, item.shard, owner="me")
            pipeline.start("shard-worker", item.filename, item.shard)
            pipeline.done("shard-worker", item.filename, item.shard)
            pipeline.fail("mysql-sender", item.filename, item.shard, error="left to nobody")
        assert pipeline.files(limit=1, before="sdk-10").files[0].by_stage["mysql_sender"].failed == 2
        assert pipeline.summary().by_stage["mysql_sender"].failed >= 2


def run_step(step: Step, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main(step, arguments)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_daemons_run_as_steps_one_after_the_other(
    mts: Mts, orders: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in mts.environ.items():
        monkeypatch.setenv(name, value)
    code, told = run_step(event_ingest.STEP, "--subject", orders, "--filename", "steps-1", capsys=capsys)
    assert (code, told["summary"]["messages"], told["summary"]["created"]) == (0, 50, True)
    for daemon in (shard_splitter, shard_worker, mysql_sender):
        code, told = run_step(daemon.STEP, capsys=capsys)
        assert (code, told["summary"]["done"]) == (0, 2), told
        code, told = run_step(daemon.STEP, capsys=capsys)
        assert (code, told["state"]) == (3, "no_data")
    assert {row[0] for row in mts.rows()} == {"steps-1"}


def test_steps_end_with_the_exit_codes_of_all_steps(
    mts: Mts, orders: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in mts.environ.items():
        monkeypatch.setenv(name, value)
    wrong = (
        ("--at", "2025-01-01"),
        ("--window", "soon"),
        ("--window", "0s", "--at", "2025-01-01"),
        ("--window", "1h", "--from", "5"),
        ("--window", "1h", "--to", "5"),
    )
    for arguments in wrong:
        code, told = run_step(event_ingest.STEP, "--subject", orders, *arguments, capsys=capsys)
        assert (code, told["error"]["code"]) == (2, "bad_request"), arguments
    assert run_step(event_ingest.STEP, capsys=capsys)[0] == 2
    code, told = run_step(
        event_ingest.STEP, "--subject", orders, "--window", "1d", "--at", "2001-01-01T12:00", capsys=capsys
    )
    assert (code, told["state"]) == (3, "no_data")
    assert run_step(shard_worker.STEP, "--lease", "0", capsys=capsys)[0] == 2
    assert run_step(shard_worker.STEP, "--function", "nothing", capsys=capsys)[0] == 2

    run_step(event_ingest.STEP, "--subject", orders, "--filename", "steps-2", "--shards", "1", capsys=capsys)
    run_step(shard_splitter.STEP, capsys=capsys)
    run_step(shard_worker.STEP, capsys=capsys)
    monkeypatch.setenv("MTS_PIPELINE_SHARDS", "")
    code, told = run_step(mysql_sender.STEP, capsys=capsys)
    assert (code, told["summary"]["failed"]) == (4, 1)
    monkeypatch.setenv("MTS_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("minitoolstream.client._client.RetryPolicy", lambda _seconds: _impatient())
    assert run_step(mysql_sender.STEP, capsys=capsys)[0] == 5


def _impatient() -> Any:
    from minitoolstream.client._retry import RetryPolicy

    return RetryPolicy(0.1)
