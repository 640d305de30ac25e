"""Checks and deletions beside everything else, and killed in the middle (rules 23 to 25)."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minitoolstream.client import Client, Item, MtsError
from minitoolstream.domain.subject import new_id
from tests.faults.audit import names_in_bucket, objects_in_bucket, settle
from tests.fsck import assert_clean, environ_of, fsck
from tests.live import Live, eventually, send, start_live


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Live]:
    live = start_live(tmp_path / "stack", extra_env={"MTS_PACKS_GRACE": "4s", "MTS_RECONCILE_INTERVAL": "200ms"})
    yield live
    live.stop()


@contextmanager
def going_on(*works: Callable[[], None]) -> Iterator[None]:
    """Each work again and again in a thread of its own; what it raises is raised at the end."""
    stop, problems = threading.Event(), []

    def run(work: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                work()
            except Exception as problem:
                problems.append(problem)
                return

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems, problems


def test_a_check_under_load_gives_no_false_alarm(stack: Live, tmp_path: Path) -> None:
    dice, numbers = random.Random(5), itertools.count()

    with Client(stack.url, stack.token) as client:

        def publish() -> None:
            client.publish("load", os.urandom(50))
            client.publish_batch("load", [Item(os.urandom(30))] * 5)

        def upload() -> None:
            ticket = stack.ticket("files", 2000)
            stack.put(ticket, os.urandom(2000))
            if dice.random() < 0.2:
                stack.api("DELETE", f"/v1/uploads/{stack.ticket('files', 5)['upload_id']}")

        def delete() -> None:
            page = client.fetch(dice.choice(["load", "files"]), start="last").messages
            for message in page[:1]:
                with contextlib.suppress(MtsError):  # it may be gone already
                    client.delete_message(message.sequence)

        def purge() -> None:
            name = f"short-{next(numbers)}"
            client.publish_batch(name, [Item(b"x")] * 20)
            client.subjects.purge(name)
            client.publish(name, b"again")
            client.subjects.delete(name)

        publish()
        upload()
        with going_on(publish, upload, delete, purge):
            for arguments in ((), ("--deep",), ("--repair",), ("--deep",)):
                assert_clean(stack, tmp_path, *arguments)
    report = assert_clean(stack, tmp_path, "--deep")
    assert report["messages"] > 0


def test_deletions_that_meet_kills_are_finished_and_neighbours_lose_nothing(stack: Live, tmp_path: Path) -> None:
    dice = random.Random(7)
    kept: dict[int, bytes] = {}
    gone: dict[int, bytes] = {}
    tries: list[int] = []
    with Client(stack.url, stack.token, retry_for=60) as client:
        for _ in range(8):
            payloads = [os.urandom(400) for _ in range(8)]
            results = client.publish_batch("orders", [Item(payload) for payload in payloads])
            sent = {r.unwrap().sequence or 0: payload for r, payload in zip(results, payloads, strict=True)}
            wanted = dice.sample(sorted(sent), 3)
            gone |= {sequence: sent.pop(sequence) for sequence in wanted}
            kept |= sent
        victims = itertools.cycle((stack.hosts[0], stack.tarantool, stack.minio))
        done = threading.Event()

        def delete_all() -> None:
            for sequence in gone:
                ended = False
                while not ended:
                    tries.append(sequence)
                    with contextlib.suppress(MtsError):
                        ended = client.delete_message(sequence, "law").done
            done.set()

        worker = threading.Thread(target=delete_all)
        worker.start()
        kills = 0
        while not done.is_set():
            victim, before = next(victims), len(tries) + dice.randrange(1, 5)
            eventually(lambda: done.is_set() or len(tries) >= before, within=120, pause=0.002)  # noqa: B023
            victim.kill()
            victim.start()
            kills += 1
        worker.join()
        assert kills > 3
        found = {message.sequence: message.data for message in client.read("orders")}
        assert found == kept
    stored = b"".join(
        stack.minio.s3().get_object(Bucket=stack.minio.bucket, Key=name)["Body"].read()
        for name in objects_in_bucket(stack)
    )
    eventually(lambda: stack.api("GET", "/v1/status").json["trash"] == 0, within=60)
    left = [sequence for sequence, payload in gone.items() if payload in stored]
    assert not left, "bytes of deleted messages are in the bucket"
    eventually(lambda: _settled(stack, tmp_path), within=60)
    records = stack.api("GET", "/v1/deletions?limit=1000").json["deletions"]
    assert {sequence for record in records for sequence in record["what"]["sequences"]} >= set(gone)


def _settled(stack: Live, folder: Path) -> bool:
    """Packs that a killed rewrite left go after their grace."""
    stack.reconcile()
    report = fsck(stack, folder, "--deep")
    assert report["deletions"] == 0
    return report["verdict"] == "clean" and not report["objects"]["waiting"]["count"]


def test_a_repair_killed_anywhere_is_finished_by_the_next(stack: Live, tmp_path: Path) -> None:
    s3, bucket = stack.minio.s3(), stack.minio.bucket
    with Client(stack.url, stack.token) as client:
        client.publish_batch("orders", [Item(b"kept %d" % n) for n in range(50)])
        lost = []
        for _ in range(10):
            ticket = stack.ticket("files", 100)
            stack.put(ticket, os.urandom(100))
            lost.append(stack.receipt(ticket["upload_id"])["sequence"])
            s3.delete_object(Bucket=bucket, Key=ticket["object_name"])
        for _ in range(10):
            s3.put_object(Bucket=bucket, Key=f"m/orders/1/{new_id(1_600_000_000_000)}", Body=b"orphan")
        command = [sys.executable, "-m", "minitoolstream.cli.main", "fsck", "--repair"]
        dice = random.Random(3)
        for _ in range(6):
            process = subprocess.Popen(command, env=environ_of(stack, tmp_path), cwd=tmp_path)
            _kill_after(process, dice.uniform(0.3, 1.5))
        report = fsck(stack, tmp_path, "--repair")
        assert not report["left"], report["faults"]
        eventually(lambda: stack.api("GET", "/v1/status").json["trash"] == 0, within=60)
        report = assert_clean(stack, tmp_path, "--deep")
        assert report["quarantined"] == len(lost)
        assert all(message.payload_missing for message in client.fetch("files").messages)
        assert len(list(client.read("orders"))) == 50


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Unless it has ended by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_url_of_a_deleted_payload_used_again_leaves_nothing(stack: Live, tmp_path: Path) -> None:
    """A URL outlives the deletion of its key (rule 8)."""
    ticket = stack.ticket("again", 10)
    stack.put(ticket, b"0123456789")
    sequence = stack.receipt(ticket["upload_id"])["sequence"]
    assert stack.api("DELETE", f"/v1/messages/{sequence}").json["done"]
    assert send(ticket["method"], ticket["url"], b"0123456789", ticket["headers"]).status == 200
    eventually(lambda: ticket["object_name"] not in objects_in_bucket(stack))
    assert_clean(stack, tmp_path)


def test_what_is_deleted_settles(stack: Live) -> None:
    """The old comparison of bucket and rows holds too, the record aside."""
    with Client(stack.url, stack.token) as client:
        sequences = [r.unwrap().sequence or 0 for r in client.publish_batch("orders", [Item(b"x")] * 4)]
        client.delete_message(sequences[1])
        client.subjects.purge("orders")
    stack.minio.s3().delete_objects(
        Bucket=stack.minio.bucket,
        Delete={"Objects": [{"Key": name} for name in names_in_bucket(stack, "_mts/deletions/")]},
    )
    settle(stack)
