"""Streams: exactly once, whatever dies, and seen as durables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client
from minitoolstream.domain.errors import MtsError
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


def test_a_query_goes_on_in_bounded_batches_and_its_place_is_no_others(
    spark: Any, stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    """Spark tells a source where its checkpoint stands. Another query counts its batches from 0 too: they are not taken
    for those that are there."""
    place = place_of(str(tmp_path / "place"), stack.settings)

    def run(checkpoint: str, messages: int) -> None:
        for _ in range(messages):
            client.publish(subject, b"x")
        reader = spark.readStream.format("minitoolstream").option("subject", subject).option("batchMessages", 2)
        query = (
            reader.load()
            .writeStream.foreachBatch(lambda frame, batch: write_batch(frame, batch, place))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    run("first", 3)
    run("first", 3)
    manifests = [read_manifest(place, name) for name in place.names("batch-") if name.endswith(".json")]
    assert [manifest["rows"] for manifest in manifests] == [2, 1, 2, 1]
    with pytest.raises(Exception, match="is of another query"):
        run("second", 0)


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
    sequences: list[int] = []
    for _ in range(10):
        client.publish(f"{subject}-other", b"sequences of others do not count")
        sequences += [result.unwrap().sequence or 0 for result in client.publish_batch(subject, [b"x"] * 10)]
    following = follower(stack, subject, batchMessages="35", durable="d")
    assert following.latest() == sequences[34]
    following.between(following.begin(), sequences[34])
    assert following.latest() == sequences[69]
    following.commit(sequences[34])
    restarted = follower(stack, subject, batchMessages="15", durable="d")
    told = restarted.between(sequences[69], sequences[69])
    assert told is None  # planned before it was killed, maybe not written
    assert restarted.latest() == sequences[84]
    assert client.consumers.get(subject, "d").last_sequence == sequences[34]
    restarted.between(sequences[69], sequences[84])
    restarted.between(sequences[84], sequences[94])
    assert restarted.latest() == sequences[99]


def test_a_new_query_begins_where_it_was_when_spark_first_asked(stack: Live, client: Client, subject: str) -> None:
    """Spark asks how far it may read first, and only then where it begins."""
    first = client.publish(subject, b"x").sequence or 0
    following = follower(stack, subject, start="new", batchMessages="1", durable="d")
    assert following.latest() == first
    client.publish(subject, b"y")
    assert following.begin() == first
    with pytest.raises(MtsError, match=r"back to"):
        following.between(first, first - 1)


@pytest.mark.parametrize("wrong", [{"toSequence": "9"}, {"toTime": "9"}, {"plan": "journal"}])
def test_a_stream_has_no_end(stack: Live, wrong: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"stream"):
        follower(stack, "orders", **wrong)
