"""Streams: exactly once, whatever dies, and seen as durables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client
from minitoolstream.pipeline.places import place_of
from spark_emr.following import Follower
from spark_emr.reader import read_options
from spark_emr.sinks.parquet import read_manifest, write_batch
from tests.live import Live
from tests.spark.conftest import ROOT, SPARK_CONF, spark_environ


@pytest.fixture(scope="module")
def client(stack: Live) -> Any:
    with Client(stack.url, stack.token) as client:
        yield client


def run_job(stack: Live, subject: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    conf = folder / "spark-defaults.conf"
    conf.write_text("".join(f"{name} {value}\n" for name, value in SPARK_CONF.items()))
    environ = {
        **os.environ,
        **spark_environ(),
        **stack.environ,
        "MTS_URL": stack.url,
        "MTS_HOME": str(folder / "home"),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {conf} pyspark-shell",
    }
    command = [sys.executable, "-m", "tests.spark.stream_job", subject, str(folder), *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )


def test_each_message_reaches_parquet_and_foreach_batch_once_though_the_driver_is_killed(
    spark: Any, stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    client.publish_batch(subject, [b"before %d" % n for n in range(500)])
    killed = run_job(stack, subject, tmp_path, "--die")
    assert killed.returncode == -9, killed.stderr[-3000:]
    assert client.consumers.get(subject, "batches").lag == 500
    client.publish_batch(subject, [b"after %d" % n for n in range(300)])
    ended = run_job(stack, subject, tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]

    expected = sorted(message.sequence for message in client.messages(subject))
    assert len(expected) == 800
    rows = spark.read.parquet(str(tmp_path / "files")).select("sequence").collect()
    assert sorted(row.sequence for row in rows) == expected
    place = place_of(str(tmp_path / "batches"), stack.settings)
    manifests = [name for name in place.names("batch-") if name.endswith(".json")]
    assert len(manifests) >= 2
    names = [file["name"] for name in manifests for file in read_manifest(place, name)["files"]]
    tables = [pq.read_table(tmp_path / "batches" / name) for name in names]
    assert sorted(n for table in tables for n in table.column("sequence").to_pylist()) == expected
    assert client.consumers.get(subject, "files").lag == 0


def test_a_place_belongs_to_one_checkpoint(spark: Any, stack: Live, tmp_path: Path) -> None:
    """Another query counts its batches from 0 too: they are not taken for those that are there."""
    place, source = place_of(str(tmp_path / "place"), stack.settings), tmp_path / "source"
    source.mkdir()

    def run(checkpoint: str, line: str) -> Any:
        (source / line).write_text(line)
        query = (
            spark.readStream.text(str(source))
            .writeStream.foreachBatch(lambda frame, batch: write_batch(frame, batch, place))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return query

    run("first", "one")
    run("first", "two")
    manifests = [name for name in place.names("batch-") if name.endswith(".json")]
    assert [read_manifest(place, name)["rows"] for name in manifests] == [1, 1]
    with pytest.raises(Exception, match="is of another query"):
        run("second", "three")


def follower(stack: Live, subject: str, **options: str) -> Follower:
    return Follower(stack.settings, read_options({"subject": subject, **options}))


def test_a_stream_begins_where_it_is_told_and_its_durable_stands_there(
    stack: Live, client: Client, subject: str
) -> None:
    sequences = [result.unwrap().sequence or 0 for result in client.publish_batch(subject, [b"x"] * 10)]
    assert follower(stack, subject).begin() < sequences[0]
    assert follower(stack, subject, start="new").begin() == sequences[-1]
    assert follower(stack, subject, fromSequence=str(sequences[4])).begin() == sequences[3]
    assert follower(stack, subject, durable="d", fromSequence=str(sequences[4])).begin() == sequences[3]
    assert client.consumers.get(subject, "d").lag == 6
    assert follower(stack, subject, durable="d").begin() == sequences[3]


def test_what_a_stream_has_done_with_shows_as_its_durables_position(stack: Live, client: Client, subject: str) -> None:
    sequences = [result.unwrap().sequence or 0 for result in client.publish_batch(subject, [b"x"] * 10)]
    following = follower(stack, subject, durable="d")
    begin = following.begin()
    wanted = following.between(begin, following.latest())
    assert wanted is not None
    assert wanted.to_sequence == sequences[-1]
    following.commit(sequences[-1])
    assert client.consumers.get(subject, "d").lag == 0
    client.consumers.delete(subject, "d")
    following.commit(sequences[-1])
    assert client.consumers.get(subject, "d").lag == 0


def test_batches_can_be_bounded(stack: Live, client: Client, subject: str) -> None:
    client.publish_batch(subject, [b"x"] * 100)
    following = follower(stack, subject, batchMessages="30", durable="d")
    begin = following.begin()
    assert following.latest() == begin + 30
    following.between(begin, begin + 30)
    assert following.latest() == begin + 60
    following.commit(begin + 30)
    assert follower(stack, subject, batchMessages="30", durable="d").latest() == begin + 60


@pytest.mark.parametrize("wrong", [{"toSequence": "9"}, {"toTime": "9"}, {"plan": "journal"}])
def test_a_stream_has_no_end(stack: Live, wrong: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"stream"):
        follower(stack, "orders", **wrong)
