"""The steps on real servers, each as `spark-submit` would run it, in the session of these tests."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client, Item
from minitoolstream.domain.cid import cid_of
from minitoolstream.pipeline.places import place_of
from spark_emr.reader import plan_read
from spark_emr.sinks import parquet
from spark_emr.steps import compact, content_ids, replay_to_parquet, replay_to_subject, stats, verify
from spark_emr.steps._range import options_of
from spark_emr.steps._step import Exit, Step, main
from tests.fsck import fsck
from tests.live import Live, eventually
from tests.servers import MinioServer

Told = tuple[int, dict[str, Any]]
RunStep = Callable[..., Told]


@pytest.fixture(scope="module")
def client(stack: Live) -> Any:
    with Client(stack.url, stack.token) as client:
        yield client


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> RunStep:
    """Run a step; its exit code and summary."""

    def run_step(step: Step, *arguments: object) -> Told:
        capsys.readouterr()
        code = main(step, [str(argument) for argument in arguments])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return run_step


def publish(client: Client, subject: str, count: int = 20) -> dict[int, bytes]:
    """Packed messages and single objects, by sequence."""
    bodies = [b"%s %d" % (subject.encode(), n) for n in range(count)]
    items = [Item(body, headers={"kind": "even" if n % 2 == 0 else "odd"}) for n, body in enumerate(bodies)]
    receipts = [result.unwrap() for result in client.publish_batch(subject, items)]
    bodies += [b"x" * 3000, b"y" * 4000, b"z" * 5000]
    receipts += [client.publish(subject, body) for body in bodies[count:]]
    return {receipt.sequence or 0: body for receipt, body in zip(receipts, bodies, strict=True)}


def upload(client: Client, subject: str, tmp_path: Path, *bodies: bytes) -> dict[int, bytes]:
    """Objects of their own, by ticket."""
    found = {}
    for body in bodies:
        path = tmp_path / hashlib.sha256(body).hexdigest()
        path.write_bytes(body)
        found[client.publish_file(subject, path, headers={"kind": "file"}).sequence or 0] = body
    return found


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_a_range_becomes_parquet_files_that_a_manifest_names(
    run: RunStep, stack: Live, client: Client, tmp_path: Path, where: str
) -> None:
    import io

    import pyarrow.parquet as pq

    subject = f"parquet-in-a-{where}"
    sent = publish(client, subject)
    output = str(tmp_path / "out") if where == "folder" else f"s3://{stack.settings['minio.bucket']}/replays/{subject}"
    code, told = run(replay_to_parquet.STEP, "--subject", subject, "--output", output, "--partitions", 3)
    assert code == 0, told
    assert (told["summary"]["rows"], told["summary"]["files"]) == (23, len(told["wrote"]))
    place = place_of(output, stack.settings)
    files = parquet.read_manifest(place)["files"]
    rows = [row for file in files for row in pq.read_table(io.BytesIO(place.get(file["name"]))).to_pylist()]
    assert {row["sequence"]: row["payload"] for row in rows} == sent
    again, told = run(replay_to_parquet.STEP, "--subject", subject, "--output", output)
    assert (again, told["error"]["code"]) == (Exit.BAD_ARGUMENTS, "already_exists")


def test_the_plan_may_come_from_the_journal(run: RunStep, client: Client, subject: str) -> None:
    sent = publish(client, subject)
    client.delete_message(max(sent), "for the test")

    def journal_knows() -> dict[str, Any] | None:
        arguments = ("--subject", subject, "--plan", "journal")
        code, told = run(verify.STEP, *arguments)
        return told if code == 0 and told["summary"]["messages"] == 22 else None

    told = eventually(journal_knows, within=90)
    assert told is not None
    assert (told["summary"]["first_sequence"], told["summary"]["plan"]) == (min(sent), "journal")


def test_messages_are_replayed_into_another_subject_once_however_often_it_runs(
    run: RunStep, client: Client, subject: str, tmp_path: Path
) -> None:
    client.subjects.put(subject, partitions=2)
    sent = {}
    for n in range(6):
        receipt = client.publish(subject, b"%d" % n, group=f"g{n % 3}", headers={"n": str(n)}, codec="gzip")
        sent[receipt.sequence] = b"%d" % n
    last = max(sequence for sequence in sent if sequence)
    target = f"{subject}-again"
    arguments = ("--subject", subject, "--to-subject", target)
    code, told = run(replay_to_subject.STEP, *arguments, "--to-sequence", last - 2)
    assert (code, told["summary"]["published"]["messages"]) == (0, 4), told
    code, told = run(replay_to_subject.STEP, *arguments)
    published = told["summary"]["published"]
    assert (code, published["messages"], published["already"]) == (0, 2, 4)
    found = list(client.read(target))
    assert sorted(message.data or b"" for message in found) == sorted(sent.values())
    assert {message.headers["n"]: message.data for message in found} == {str(n): b"%d" % n for n in range(6)}
    assert {message.codec for message in found} == {"gzip"}


def test_a_range_before_one_that_was_replayed_is_replayed_too(run: RunStep, client: Client, subject: str) -> None:
    sent = sorted(publish(client, subject, 7))
    target = f"{subject}-again"
    named = ("--to-subject", target, "--name", "nightly")
    for ends in ((sent[5], sent[-1]), (sent[0], sent[4])):
        arguments = ("--subject", subject, "--from-sequence", ends[0], "--to-sequence", ends[1])
        code, told = run(replay_to_subject.STEP, *arguments, *named)
        assert (code, told["summary"]["published"]["messages"], told["summary"]["published"]["already"]) == (0, 5, 0)
    assert len(list(client.messages(target))) == 10


def test_what_the_other_subject_refused_is_published_when_it_takes_it(
    run: RunStep, client: Client, subject: str
) -> None:
    refused = client.publish(subject, b"one", codec="gzip").sequence
    client.publish(subject, b"two")
    target = f"{subject}-again"
    client.subjects.put(target, codecs=["raw"])
    arguments = ("--subject", subject, "--to-subject", target)
    code, told = run(replay_to_subject.STEP, *arguments)
    assert (code, told["error"]["details"]["sequence"]) == (Exit.BAD_ARGUMENTS, refused)
    client.subjects.put(target, codecs=["raw", "gzip"])
    code, told = run(replay_to_subject.STEP, *arguments)
    assert (code, told["summary"]["published"]["messages"]) == (0, 2)
    assert [message.data for message in client.read(target)] == [b"one", b"two"]


def test_a_subject_is_replayed_behind_another_under_the_same_name(run: RunStep, client: Client, subject: str) -> None:
    later = f"{subject}-later"
    for one in (subject, later):
        publish(client, one, 1)
    for one in (later, subject):
        code, told = run(replay_to_subject.STEP, "--subject", one, "--to-subject", "merged", "--name", "nightly")
        assert (code, told["summary"]["published"]["messages"], told["summary"]["published"]["already"]) == (0, 4, 0)


def test_what_has_no_payload_is_left_out_of_a_replay_when_asked(
    run: RunStep, stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    files = upload(client, subject, tmp_path, b"first", b"second", b"third")
    gone = sorted(files)[1]
    stack.minio.s3().delete_object(Bucket=stack.settings["minio.bucket"], Key=client.get(gone).object_name)
    arguments = ("--subject", subject, "--to-subject", f"{subject}-again")
    code, told = run(replay_to_subject.STEP, *arguments)
    assert (code, told["error"]["code"]) == (Exit.VERIFICATION_FAILED, "payload_missing")
    assert told["error"]["details"]["sequence"] == gone
    code, told = run(replay_to_subject.STEP, *arguments, "--on-missing", "skip")
    published = told["summary"]["published"]
    assert (code, published["messages"] + published["already"], published["skipped"]) == (0, 2, 1)
    assert [message.data for message in client.read(f"{subject}-again")] == [b"first", b"third"]


def test_content_ids_of_messages_without_a_checksum_are_computed(
    run: RunStep, stack: Live, client: Client, subject: str
) -> None:
    sent = publish(client, subject)
    code, told = run(content_ids.STEP, "--subject", subject)
    assert code == 0, told
    # This subject asks for no copies: the catalog is told, and holds nothing.
    assert told["summary"]["held"] == 0
    options = options_of(argparse.Namespace(subject=subject), payload="false")
    found = {
        sequence: digest
        for partition in plan_read(stack.settings, options, 2).partitions
        for sequence, digest in content_ids.digests(stack.settings, options, partition)
    }
    assert told["summary"]["hashed"] == len(found) > 0
    assert all(digest == hashlib.sha256(sent[sequence]).hexdigest() for sequence, digest in found.items())


def test_messages_whose_content_ids_were_computed_get_their_copies(
    run: RunStep, stack: Live, client: Client, subject: str, minio_server: MinioServer
) -> None:
    assert stack.api("PUT", f"/v1/subjects/{subject}", {"copies": {"rf": 1}}).status == 201
    sent = publish(client, subject)
    for _ in range(2):  # told twice, they are held once
        code, told = run(content_ids.STEP, "--subject", subject)
        assert code == 0, told
        assert told["summary"]["held"] == told["summary"]["hashed"] == len(sent)
    assert client.catalog.reconcile().copied == len(sent)
    listed = minio_server.s3().list_objects_v2(Bucket=minio_server.bucket, Prefix="cid/")["Contents"]
    assert {f"cid/{cid_of(body)}" for body in sent.values()} <= {one["Key"] for one in listed}


def test_a_subject_is_not_replayed_into_itself(run: RunStep, client: Client, subject: str) -> None:
    publish(client, subject, 1)
    code, _ = run(replay_to_subject.STEP, "--subject", subject, "--to-subject", subject)
    assert code == Exit.BAD_ARGUMENTS


def test_verify_finds_what_is_damaged_and_what_is_gone(
    run: RunStep, stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    publish(client, subject)
    files = upload(client, subject, tmp_path, b"first file" * 100, b"second file" * 100, b"third file" * 100)
    code, told = run(verify.STEP, "--subject", subject)
    summary = told["summary"]
    assert code == 0
    assert (summary["messages"], summary["by_crc32"], summary["by_sha256"], summary["damaged"]) == (26, 23, 3, 0)
    damaged, gone, _ = sorted(files)
    s3, bucket = stack.minio.s3(), stack.settings["minio.bucket"]
    s3.put_object(Bucket=bucket, Key=client.get(damaged).object_name, Body=files[damaged].replace(b"f", b"F"))
    s3.delete_object(Bucket=bucket, Key=client.get(gone).object_name)
    code, told = run(verify.STEP, "--subject", subject)
    assert code == Exit.VERIFICATION_FAILED
    problems = {problem["sequence"]: problem["problem"] for problem in told["summary"]["problems"]}
    assert problems == {damaged: "checksum_mismatch", gone: "payload_missing"}
    code, told = run(replay_to_parquet.STEP, "--subject", subject, "--output", tmp_path / "out")
    assert code == Exit.VERIFICATION_FAILED
    assert told["error"]["details"]["sequence"] in {damaged, gone}
    code, told = run(replay_to_parquet.STEP, "--subject", subject, "--output", tmp_path / "out", "--on-missing", "skip")
    assert (code, told["summary"]["rows"]) == (0, 24)


def test_small_objects_are_put_together_and_nobody_notices(
    run: RunStep, stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    sent = upload(client, subject, tmp_path, *(b"small object %d" % n for n in range(8)))
    sent |= publish(client, subject)
    held = client.get(min(sent))
    code, told = run(compact.STEP, "--subject", subject)
    summary = told["summary"]
    assert (code, summary["objects_before"], summary["packs"], summary["left"]) == (0, 12, 1, {}), told
    found = list(client.read(subject))
    assert {message.sequence: message.data for message in found} == sent
    assert len({message.object_name for message in found}) == 1
    assert found[0].headers == held.headers
    assert client.payload(held) == sent[held.sequence]  # what was given out before still works
    code, _ = run(verify.STEP, "--subject", subject)
    assert code == 0
    faults = json.dumps(fsck(stack, tmp_path)["faults"])
    assert subject not in faults
    assert found[0].object_name not in faults
    code, told = run(compact.STEP, "--subject", subject)
    assert code == Exit.NO_DATA


def test_stats_count_by_hour_and_header(run: RunStep, spark: Any, client: Client, subject: str, tmp_path: Path) -> None:
    publish(client, subject)
    other = f"{subject}-other"
    publish(client, other)
    code, told = run(stats.STEP, "--subject", subject, "--header", "kind", "--output", tmp_path / "out")
    assert code == 0, told
    values = {name: total["messages"] for name, total in told["summary"]["values"].items()}
    assert values == {"even": 10, "odd": 10, "(none)": 3}
    assert sum(hour["messages"] for hour in told["summary"]["hours"]) == 23
    assert (tmp_path / "out" / "stats.csv").read_text().startswith("subject,hour,kind,messages,bytes")
    assert b"<svg" in (tmp_path / "out" / "stats.svg").read_bytes()
    code, told = run(stats.STEP)
    counted = {name: total["messages"] for name, total in told["summary"]["subjects"].items()}
    assert (code, counted[subject], counted[other]) == (0, 23, 23)


@pytest.mark.parametrize("step", [verify.STEP, stats.STEP, compact.STEP], ids=lambda step: step.name)
def test_an_empty_range_and_an_unknown_subject_are_told_apart(
    run: RunStep, client: Client, subject: str, step: Step
) -> None:
    publish(client, subject, 1)
    code, told = run(step, "--subject", subject, "--from-sequence", 10**15)
    assert (code, told["error"]["code"]) == (Exit.NO_DATA, "no_data")
    code, told = run(step, "--subject", "nobody-made-me")
    assert (code, told["error"]["code"]) == (Exit.BAD_ARGUMENTS, "unknown_subject")


def test_a_store_that_is_away_is_exit_code_5(run: RunStep, spark: Any, client: Client, subject: str) -> None:
    from spark_emr.session import conf_name

    publish(client, subject, 1)
    endpoint = spark.conf.get(conf_name("minio.endpoint"))
    spark.conf.set(conf_name("minio.endpoint"), "http://127.0.0.1:1")
    try:
        code, told = run(verify.STEP, "--subject", subject)
    finally:
        spark.conf.set(conf_name("minio.endpoint"), endpoint)
    assert (code, told["error"]["code"]) == (Exit.DEPENDENCY_DOWN, "unavailable")
    assert "sequence" in told["error"]["details"]
