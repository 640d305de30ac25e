"""Deletion for good: a message, all of a subject; neighbours stay, the record tells, nothing is left over."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from minitoolstream.client import Client, Item, MtsError
from tests.faults.audit import objects_in_bucket
from tests.fsck import assert_clean, mts
from tests.live import Live, eventually, send, start_live

SMALL = 40


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("deletion"))
    yield live
    live.stop()


@pytest.fixture
def client(stack: Live) -> Iterator[Client]:
    with Client(stack.url, stack.token) as opened:
        yield opened


def batch(client: Client, subject: str, count: int) -> dict[int, bytes]:
    """Messages of one pack: payloads by sequence."""
    payloads = [f"{subject} {number}".encode().ljust(SMALL, b".") for number in range(count)]
    items = [Item(payload, headers={"n": str(n)}) for n, payload in enumerate(payloads)]
    results = client.publish_batch(subject, items)
    return {result.unwrap().sequence or 0: payload for result, payload in zip(results, payloads, strict=True)}


def mixed_packs(client: Client, *subjects: str) -> None:
    """Publish inline side by side until messages of all subjects lie in one pack."""

    def publish(number: int) -> None:
        client.publish(subjects[number % len(subjects)], b"some bytes %d" % number)

    def is_mixed() -> bool:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(publish, range(32)))
        packs = [{message.object_name for message in client.messages(subject)} for subject in subjects]
        return bool(set.intersection(*packs))

    eventually(is_mixed)


def stored(client: Client, subject: str) -> dict[int, bytes]:
    return {message.sequence: message.data or b"" for message in client.read(subject)}


def bucket_bytes(stack: Live) -> bytes:
    """Everything that the bucket holds."""
    s3 = stack.minio.s3()
    names = sorted(objects_in_bucket(stack))
    return b"".join(s3.get_object(Bucket=stack.minio.bucket, Key=name)["Body"].read() for name in names)


def record_of(stack: Live, deletion_id: str) -> Any:
    key = f"_mts/deletions/{deletion_id}"
    return json.loads(stack.minio.s3().get_object(Bucket=stack.minio.bucket, Key=key)["Body"].read())


def test_a_plain_message_and_its_payload_are_gone_at_once(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    payload = os.urandom(100_000)
    ticket = stack.ticket(subject, len(payload))
    stack.put(ticket, payload)
    sequence = stack.receipt(ticket["upload_id"])["sequence"]
    answer = stack.api("DELETE", f"/v1/messages/{sequence}?reason=asked+for")
    assert answer.status == 200
    assert answer.json["done"]
    assert ticket["object_name"] not in objects_in_bucket(stack)
    assert stack.api("GET", f"/v1/messages/{sequence}").status == 404
    record = record_of(stack, answer.json["id"])
    assert (record["what"]["sequences"], record["who"], record["reason"]) == ([sequence], "api", "asked for")
    assert client.subjects.get(subject).messages == 0
    assert_clean(stack, tmp_path)


def test_a_message_of_a_pack_goes_and_its_neighbours_stay(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    sent = batch(client, subject, 5)
    before = {message.sequence: message for message in client.fetch(subject).messages}
    gone = sorted(sent)[2]
    deletion = client.delete_message(gone, "wrong customer")
    assert (deletion.done, deletion.sequences, deletion.bytes) == (True, (gone,), SMALL)
    payload = sent.pop(gone)
    assert stored(client, subject) == sent
    assert payload not in bucket_bytes(stack), "its bytes are in no object"
    after = {message.sequence: message for message in client.fetch(subject).messages}
    assert {(n, after[n].offset, after[n].headers["n"]) for n in after} == {
        (n, before[n].offset, before[n].headers["n"]) for n in sent
    }
    assert before[gone].object_name not in objects_in_bucket(stack), "the old pack is gone"
    assert_clean(stack, tmp_path, "--deep")


def test_a_reader_with_urls_of_the_old_pack_gets_the_neighbours_payloads(client: Client, subject: str) -> None:
    sent = batch(client, subject, 3)
    page = client.fetch(subject).messages
    client.delete_message(page[0].sequence)
    assert client.payload(page[1]) == sent[page[1].sequence]
    with pytest.raises(MtsError) as gone:
        client.payload(page[0])
    assert gone.value.code == "not_found"


def test_all_messages_of_a_pack_one_by_one_leave_nothing(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    for sequence in batch(client, subject, 4):
        assert client.delete_message(sequence).done
    assert stored(client, subject) == {}
    assert subject.encode() not in bucket_bytes(stack).replace(json.dumps(subject).encode(), b"")
    assert_clean(stack, tmp_path)


def test_a_pack_that_a_producer_laid_out_is_rewritten_too(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    payloads = [os.urandom(3000), os.urandom(5 << 20), os.urandom(13 << 20), b"", os.urandom(10)]
    frames = b"".join(struct.pack(">II", len(one), crc32(one)) + one for one in payloads)
    body = b"my own head" + frames
    ticket = stack.ticket(subject, len(body), sizes=[len(one) for one in payloads])
    for part in ticket["parts"]["urls"]:
        start = (part["number"] - 1) * ticket["parts"]["part_size"]
        send("PUT", part["url"], body[start : start + part["size"]])
    last = stack.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").json["sequence"]
    first = last - len(payloads) + 1
    assert client.delete_message(first + 1).done
    left = {first: payloads[0], first + 2: payloads[2], first + 3: b"", first + 4: payloads[4]}
    found = client.fetch(subject).messages
    assert {message.sequence: client.payload(message) for message in found} == left
    assert ticket["object_name"] not in objects_in_bucket(stack)
    assert_clean(stack, tmp_path, "--deep")


def test_a_dead_letter_and_its_message_go_together(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    sent = sorted(batch(client, subject, 3))
    client.consumers.put(subject, "workers", mode="shared", max_deliver=1, start="first")
    leased = stack.api("POST", f"/v1/subjects/{subject}/consumers/workers/lease", {"limit": 1}).json
    nack = {"lease_id": leased["lease_id"], "sequences": [sent[0]]}
    stack.api("POST", f"/v1/subjects/{subject}/consumers/workers/nack", nack)
    (letter,) = client.dead_letters.fetch(subject).messages
    deletion = client.delete_message(letter.sequence)
    assert deletion.sequences == (sent[0], letter.sequence)
    assert client.dead_letters.fetch(subject).messages == ()
    assert sorted(stored(client, subject)) == sent[1:]
    assert_clean(stack, tmp_path)


def test_purging_a_subject_leaves_others_in_the_same_packs_alone(
    stack: Live, client: Client, subject: str, tmp_path: Path
) -> None:
    other = f"{subject}-other"
    mixed_packs(client, subject, other)
    theirs = stored(client, other)
    count = len(stored(client, subject))
    payload = os.urandom(50_000)
    ticket = stack.ticket(subject, len(payload))
    stack.put(ticket, payload)
    stack.receipt(ticket["upload_id"])
    client.consumers.put(subject, "reader", start="first")
    done = client.subjects.purge(subject, "the customer left")
    assert (done.done, done.messages) == (True, count + 1)
    assert stored(client, subject) == {}
    assert stored(client, other) == theirs
    assert client.consumers.get(subject, "reader").lag == 0
    assert client.subjects.get(subject).bytes == 0
    assert ticket["object_name"] not in objects_in_bucket(stack)
    receipt = client.publish(subject, b"later")
    assert list(stored(client, subject)) == [receipt.sequence]
    assert_clean(stack, tmp_path)


def test_asked_again_the_same_is_answered(client: Client, subject: str) -> None:
    (sequence,) = batch(client, subject, 1)
    first = client.delete_message(sequence, "one")
    assert client.delete_message(sequence, "two") == first
    with pytest.raises(MtsError) as unknown:
        client.delete_message(1_000_000_000)
    assert unknown.value.code == "not_found"
    with pytest.raises(MtsError) as no_subject:
        client.subjects.purge(f"{subject}-none")
    assert no_subject.value.code == "unknown_subject"


def test_a_message_sent_again_after_its_deletion_is_still_a_duplicate(client: Client, subject: str) -> None:
    first = client.publish(subject, b"once", producer_id="p", seqno=1)
    assert client.delete_message(first.sequence or 0).done
    again = client.publish(subject, b"once", producer_id="p", seqno=1)
    assert (again.duplicate, again.sequence) == (True, first.sequence)


def test_bad_requests_change_nothing(stack: Live, client: Client, subject: str) -> None:
    (sequence,) = batch(client, subject, 1)
    for path in (f"/v1/messages/{sequence}?reason={'x' * 1001}", f"/v1/messages/{sequence}?why=1", "/v1/messages/abc"):
        assert stack.api("DELETE", path).status == 400
    assert stack.api("POST", f"/v1/subjects/{subject}/purge", {"reason": "a\nb"}).status == 400
    assert stack.api("GET", "/v1/deletions?after=zzz").status == 400
    assert list(stored(client, subject)) == [sequence]


def test_the_commands_delete_and_show_the_record(stack: Live, client: Client, subject: str, tmp_path: Path) -> None:
    one, two = sorted(batch(client, subject, 2))
    assert mts(stack, tmp_path, "delete", str(one)).returncode == 2, "asks for the number again"
    done = mts(stack, tmp_path, "delete", str(one), "--yes", str(one), "--reason", "law")
    assert done.returncode == 0, done.stderr
    assert f"deleted: message {one}" in done.stdout
    done = mts(stack, tmp_path, "subject", "purge", subject, "--yes", subject, "--json")
    assert json.loads(done.stdout)["messages"] == 1
    records = json.loads(mts(stack, tmp_path, "deletions", "--limit", "1000", "--json").stdout)["deletions"]
    mine = [entry for entry in records if entry["subject"] == subject]
    assert [(entry["kind"], entry["reason"]) for entry in mine] == [("message", "law"), ("subject", "")]
    assert mts(stack, tmp_path, "get", str(two)).returncode == 3
