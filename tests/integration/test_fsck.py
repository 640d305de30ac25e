"""`mts fsck` finds each fault that can be planted, mends what the rules allow, and calls nothing else a fault."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client, Item, MtsError
from minitoolstream.domain.subject import new_id
from minitoolstream.services.fsck_findings import kind_of
from tests.clocked_tarantool import start_clocked_tarantool, touch
from tests.faults.audit import names_in_bucket, objects_in_bucket, status
from tests.fsck import assert_clean, environ_of, fsck, mts
from tests.live import Live, eventually, start_live


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("fsck")
    tarantool = start_clocked_tarantool(folder / "tarantool")
    live = start_live(folder, extra_env={"MTS_PACKS_GRACE": "2s"}, tarantool=tarantool)
    yield live
    live.stop()


@pytest.fixture
def client(stack: Live) -> Iterator[Client]:
    with Client(stack.url, stack.token) as opened:
        yield opened


def put(stack: Live, name: str, body: bytes) -> None:
    stack.minio.s3().put_object(Bucket=stack.minio.bucket, Key=name, Body=body)


def lose(stack: Live, name: str) -> None:
    stack.minio.s3().delete_object(Bucket=stack.minio.bucket, Key=name)


def large(stack: Live, subject: str, size: int = 20_000, **more: Any) -> tuple[int, str, bytes]:
    payload = os.urandom(size)
    ticket = stack.ticket(subject, size, **more)
    stack.put(ticket, payload)
    return stack.receipt(ticket["upload_id"])["sequence"], ticket["object_name"], payload


def kinds(report: Any) -> dict[str, int]:
    return dict(report["found"])


def test_the_report_accounts_for_everything(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    client.publish_batch(subject, [Item(b"x" * 100)] * 10)
    large(stack, subject)
    put(stack, "somebody/else", b"foreign")
    stack.ticket(subject, 5)
    report = assert_clean(stack, tmp_path, "--report", "kept.json")
    mine = next(entry for entry in report["subjects"] if entry["subject"] == subject)
    assert mine == {"subject": subject, "rows": 2, "messages": 11, "bytes": 21_000, "unverified": 0}
    objects = report["objects"]
    assert objects["foreign"]["count"] >= 1
    assert objects["needed"]["count"] == report["rows"]
    assert sum(objects[place]["count"] for place in ("needed", "waiting", "trash", "system", "foreign")) == len(
        set(names_in_bucket(stack)) - {f"_mts/fsck/{report['id']}"}
    )
    assert report["watermark"] == status(stack)["watermark"]
    assert report["oldest_ticket"]["state"] == "open"
    assert report["checked"]["objects"] >= 2
    assert json.loads((tmp_path / "kept.json").read_text()) == report
    assert stack.api("GET", "/v1/consistency").json == report, "every host answers the same"
    assert "somebody/else" in objects_in_bucket(stack)


def test_reports_replace_each_other(stack: Live, client: Client, tmp_path: Path) -> None:
    assert_clean(stack, tmp_path)
    report = assert_clean(stack, tmp_path)
    stack.reconcile()
    assert names_in_bucket(stack, "_mts/fsck/") == [f"_mts/fsck/{report['id']}"]
    assert client.consistency()["id"] == report["id"]


@pytest.mark.parametrize("form", ["m/{subject}/1/{id}", "_mts/packs/{id}"])
def test_an_object_without_row_is_found_and_goes_to_the_trash(
    stack: Live, subject: str, tmp_path: Path, form: str
) -> None:
    name = form.format(subject=subject, id=new_id(1_600_000_000_000))
    put(stack, name, b"orphan")
    report = fsck(stack, tmp_path)
    assert (report["verdict"], kinds(report)) == ("faults", {"orphan": 1})
    assert report["faults"][0]["object_name"] == name
    assert name in objects_in_bucket(stack), "it is only told"
    report = fsck(stack, tmp_path, "--repair")
    assert (report["verdict"], report["repaired"]) == ("repaired", {"orphan": 1})
    stack.reconcile()
    assert name not in objects_in_bucket(stack)
    assert_clean(stack, tmp_path)


def test_a_row_without_object_is_found_and_kept_apart(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    sequence, name, payload = large(stack, subject)
    other, _, _ = large(stack, subject)
    lose(stack, name)
    report = fsck(stack, tmp_path)
    assert kinds(report) == {"missing": 1}
    assert (report["faults"][0]["sequence"], report["faults"][0]["object_name"]) == (sequence, name)
    assert fsck(stack, tmp_path, "--repair")["repaired"] == {"missing": 1}
    lost, there = client.fetch(subject).messages
    assert (lost.payload_missing, lost.url, there.payload_missing) == (True, None, False)
    assert client.payload(other)
    with pytest.raises(MtsError) as missing:
        client.payload(sequence)
    assert missing.value.code == "payload_missing"
    assert stack.api("GET", f"/v1/messages/{sequence}").json["payload_missing"] is True
    extents = stack.api("GET", f"/v1/subjects/{subject}/messages?view=extents").json["extents"]
    assert ["url" in extent for extent in extents] == [False, True]
    assert status(stack)["missing"] == 1
    report = assert_clean(stack, tmp_path)
    assert report["quarantined"] == 1, "it is known from now on"
    put(stack, name, payload)  # an operator found it in a copy
    assert fsck(stack, tmp_path, "--repair")["quarantined"] == 0
    assert client.payload(sequence) == payload


def test_an_upload_that_waits_for_its_transaction_and_has_lost_its_payload_is_named(
    stack: Live, subject: str, tmp_path: Path
) -> None:
    transaction = stack.api("POST", "/v1/transactions", {}).json["transaction_id"]
    before = objects_in_bucket(stack)
    assert stack.publish(subject, b"soon", x_mts_transaction_id=transaction).status == 202
    (pack,) = (name for name in set(objects_in_bucket(stack)) - set(before) if kind_of(name) == "pack")
    assert_clean(stack, tmp_path)
    lose(stack, pack)
    report = fsck(stack, tmp_path)
    assert kinds(report) == {"missing": 1}
    assert (report["faults"][0]["object_name"], transaction in report["faults"][0]["what"]) == (pack, True)
    assert stack.api("POST", f"/v1/transactions/{transaction}/abort").status == 200
    eventually(lambda: fsck(stack, tmp_path)["verdict"] == "clean")


def test_an_object_cut_short_is_found(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    results = client.publish_batch(subject, [Item(b"x" * 100)] * 5)
    last = results[-1].unwrap().sequence
    name = client.get(last or 0).object_name
    body = stack.minio.s3().get_object(Bucket=stack.minio.bucket, Key=name)["Body"].read()
    put(stack, name, body[:-1])
    report = fsck(stack, tmp_path, "--repair")
    assert (kinds(report), report["repaired"]) == ({"short": 1}, {"short": 1})
    assert all(message.payload_missing for message in client.fetch(subject).messages)
    client.subjects.purge(subject)
    assert_clean(stack, tmp_path)


def test_a_flipped_byte_is_found_when_payloads_are_read(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    payload = os.urandom(9000)
    digest = hashlib.sha256(payload).hexdigest()
    ticket = stack.ticket(subject, len(payload), sha256=digest)
    stack.put(ticket, payload)
    plain = stack.receipt(ticket["upload_id"])["sequence"]
    packed = client.publish_batch(subject, [Item(b"y" * 100)] * 3)[2].unwrap().sequence or 0
    for sequence in (plain, packed):
        name = client.get(sequence).object_name
        body = bytearray(stack.minio.s3().get_object(Bucket=stack.minio.bucket, Key=name)["Body"].read())
        body[-1] ^= 1
        put(stack, name, bytes(body))
    report = fsck(stack, tmp_path, "--deep")
    assert kinds(report) == {"damaged": 2}
    assert {fault["sequence"] for fault in report["faults"]} == {plain, packed}
    report = fsck(stack, tmp_path, "--deep", "--repair")
    assert (report["verdict"], report["left"]) == ("faults", {"damaged": 2}), "it cannot be mended"
    assert_clean(stack, tmp_path, "--sample", "0")
    for sequence in (plain, packed):
        client.delete_message(sequence)
    assert_clean(stack, tmp_path, "--deep")


def test_a_payload_of_another_size_is_found(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    sequence, name, payload = large(stack, subject)
    put(stack, name, payload + b"more")
    assert kinds(fsck(stack, tmp_path, "--repair")) == {"size": 1}
    client.delete_message(sequence)
    assert_clean(stack, tmp_path)


def test_wrong_references_are_found_and_corrected(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    sequence = client.publish_batch(subject, [Item(b"r" * 50)] * 3)[0].unwrap().sequence or 0
    name = client.get(sequence).object_name
    touch(stack.tarantool, "space_update", "object", name, [["=", 2, 7]])
    with pytest.raises(MtsError) as refused:
        client.delete_message(sequence)
    assert refused.value.code == "inconsistent", "with wrong counts, a deletion could lose the neighbours"
    report = fsck(stack, tmp_path)
    assert (kinds(report), report["faults"][0]["object_name"]) == ({"refs": 1}, name)
    assert fsck(stack, tmp_path, "--repair")["repaired"] == {"refs": 1}
    assert_clean(stack, tmp_path)
    assert client.delete_message(sequence).done
    assert len(list(client.read(subject))) == 2
    assert_clean(stack, tmp_path)


def test_wrong_counters_are_found_and_corrected(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    client.publish_batch(subject, [Item(b"c" * 50)] * 3)
    touch(stack.tarantool, "space_update", "partition", [subject, 0], [["=", 4, 5], ["=", 5, 1]])
    report = fsck(stack, tmp_path)
    assert (kinds(report), report["faults"][0]["subject"]) == ({"counters": 1}, subject)
    assert fsck(stack, tmp_path, "--repair")["repaired"] == {"counters": 1}
    assert (client.subjects.get(subject).messages, client.subjects.get(subject).bytes) == (3, 150)
    assert_clean(stack, tmp_path)


def test_a_trash_row_of_a_needed_object_is_found_before_it_is_too_late(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    """A row that vanished from `object` and came back wrong, say by hand."""
    results = client.publish_batch(subject, [Item(b"t" * 50)] * 2)
    name = client.get(results[0].unwrap().sequence or 0).object_name
    touch(stack.tarantool, "space_delete", "object", name)
    assert client.delete_message(results[0].unwrap().sequence or 0).done, "one row needs no entry"
    assert [message.data for message in client.read(subject)] == [b"t" * 50]
    assert_clean(stack, tmp_path)


def test_a_reader_that_meets_a_missing_payload_makes_it_known(stack: Live, client: Client, subject: str) -> None:
    sequence = client.publish(subject, b"small").sequence or 0
    client.publish(subject, b"other")
    lose(stack, client.get(sequence).object_name)
    first = client.fetch(subject, inline=True).messages[0]
    assert (first.payload_missing, first.data) == (True, None)
    assert client.fetch(subject).messages[0].payload_missing
    assert client.delete_message(sequence).done
    assert stack.api("GET", "/v1/status").json["missing"] == 0
    assert [message.data for message in client.read(subject)] == [b"other"]


def test_an_interrupted_check_goes_on(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    client.publish_batch(subject, [Item(b"z")] * 10)
    assert mts(stack, tmp_path, "fsck", "--continue").returncode == 2, "there is nothing to go on with"
    command = [sys.executable, "-m", "minitoolstream.cli.main", "fsck", "--deep"]
    process = subprocess.Popen(command, env=environ_of(stack, tmp_path), cwd=tmp_path)
    eventually(lambda: list((tmp_path / "state" / "minitoolstream").glob("fsck-*.sqlite")), pause=0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    report = assert_clean(stack, tmp_path, "--continue", "--deep")
    assert any(entry["subject"] == subject for entry in report["subjects"])
    assert not list((tmp_path / "state" / "minitoolstream").glob("fsck-*.sqlite")), "its book is gone"


def test_a_check_without_its_servers_says_so(stack: Live, tmp_path: Path) -> None:
    environ = {**environ_of(stack, tmp_path), "MTS_TARANTOOL_ADDRESS": "127.0.0.1:1"}
    command = [sys.executable, "-m", "minitoolstream.cli.main", "fsck", "--json"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["code"] == "unavailable"


def test_a_ceiling_that_the_bucket_has_lost_is_a_fault_until_a_host_tells_it_again(
    stack: Live, subject: str, tmp_path: Path
) -> None:
    large(stack, subject)
    for name in names_in_bucket(stack, "_mts/ceiling/"):
        lose(stack, name)
    report = fsck(stack, tmp_path)
    assert (report["verdict"], kinds(report)) == ("faults", {"ceiling": 1})
    stack.hosts[0].stop()
    stack.hosts[0].start()
    assert_clean(stack, tmp_path)


def test_what_an_interrupted_check_left_and_cannot_be_read_is_told(stack: Live, tmp_path: Path) -> None:
    assert_clean(stack, tmp_path)
    (lock,) = (tmp_path / "state").rglob("*.lock")
    lock.with_suffix(".sqlite").write_bytes(b"no database" * 1000)
    damaged = mts(stack, tmp_path, "fsck", "--continue")
    assert damaged.returncode == 1
    assert "Traceback" not in damaged.stderr
    assert "without --continue" in damaged.stderr
    assert_clean(stack, tmp_path)


def test_a_payload_in_the_trash_that_a_row_needs_is_found_and_stays(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    sequence, name, payload = large(stack, subject)
    touch(stack.tarantool, "space_insert", "trash", [name, 2**40, "by mistake", False])
    report = fsck(stack, tmp_path)
    assert (report["verdict"], kinds(report), report["faults"][0]["object_name"]) == ("faults", {"doomed": 1}, name)
    assert fsck(stack, tmp_path, "--repair")["repaired"] == {"doomed": 1}
    assert_clean(stack, tmp_path)
    assert client.payload(sequence) == payload
