"""Named producers (promise 3, rules 13 to 15): in their order, at most once, and `duplicate` only with proof."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.live import Answer, Live, eventually

WINDOW = 1000
"""Ranges of seqnos kept a producer; those that follow each other in consecutive sequences share one."""


def named(live: Live, subject: str, payload: bytes, seqno: int, **more: str) -> Answer:
    return live.publish(subject, payload, x_mts_producer_id="p", x_mts_seqno=str(seqno), **more)


def batch(live: Live, subject: str, seqnos: Iterable[int], producer: str = "p") -> list[Any]:
    lines = [{"data": f"no {seqno}", "producer_id": producer, "seqno": seqno} for seqno in seqnos]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})
    assert answer.status == 200, answer.body
    return list(answer.json["results"])


def session(live: Live, subject: str) -> Any:
    return live.api("POST", f"/v1/subjects/{subject}/producers", {"producer_id": "p"}).json


def test_a_seqno_sent_again_is_a_duplicate_with_its_first_sequence(live: Live, subject: str) -> None:
    first = named(live, subject, b"x", 7)
    again = named(live, subject, b"x", 7)

    assert (first.status, again.status) == (201, 200)
    assert again.json["duplicate"] is True
    assert again.json["sequence"] == first.json["sequence"]
    assert len(live.messages(subject)) == 1


def test_a_seqno_that_was_passed_over_is_refused_not_swallowed(live: Live, subject: str) -> None:
    named(live, subject, b"x", 7)

    for answer in (
        named(live, subject, b"late", 6),
        live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 4, "producer_id": "p", "seqno": 6}),
    ):
        assert (answer.status, answer.code) == (409, "seqno_skipped")
    assert len(live.messages(subject)) == 1


def test_beyond_the_window_there_is_no_proof_and_so_no_duplicate(live: Live, subject: str) -> None:
    spaced = range(1, 2 * (WINDOW + 50), 2)
    results = batch(live, subject, spaced)
    assert all(result["state"] == "committed" for result in results)

    for seqno in (1, 2, 99):
        answer = named(live, subject, b"old", seqno)
        assert (answer.status, answer.code) == (409, "seqno_too_old")
    assert named(live, subject, b"between", 501).json["duplicate"] is True
    assert named(live, subject, b"between", 500).code == "seqno_skipped"
    assert named(live, subject, b"newest", spaced[-1]).json["sequence"] == results[-1]["sequence"]
    assert len(live.messages(subject)) == len(results)


def test_of_a_batch_sent_again_the_known_items_are_duplicates_and_the_rest_is_stored(live: Live, subject: str) -> None:
    first = batch(live, subject, [1, 2, 3])
    second = batch(live, subject, [2, 3, 4, 5])

    assert [result.get("duplicate", False) for result in second] == [True, True, False, False]
    assert [result["sequence"] for result in second[:2]] == [result["sequence"] for result in first[1:]]
    assert [live.payload(message) for message in live.messages(subject)] == [f"no {n}".encode() for n in range(1, 6)]


def test_one_bad_item_of_a_batch_does_not_hold_up_the_others(live: Live, subject: str) -> None:
    batch(live, subject, [5])
    results = batch(live, subject, [3, 6, 5, 7])

    assert results[0]["error"]["code"] == "seqno_skipped"
    assert [result.get("state") for result in results[1:]] == ["committed"] * 3
    assert len(live.messages(subject)) == 3


def test_the_same_seqno_twice_in_a_batch_is_stored_once(live: Live, subject: str) -> None:
    results = batch(live, subject, [1, 1, 2, 2, 2])

    assert len({result["sequence"] for result in results}) == 2
    assert len(live.messages(subject)) == 2


def test_a_ticket_asked_for_again_is_the_same_upload_signed_anew(live: Live, subject: str) -> None:
    announced = {"size": 5, "producer_id": "p", "seqno": 1}
    path = f"/v1/subjects/{subject}/uploads"

    with ThreadPoolExecutor(8) as executor:
        tickets = [answer.json for answer in executor.map(lambda _: live.api("POST", path, announced), range(8))]

    assert len({ticket["upload_id"] for ticket in tickets}) == 1
    assert live.put(tickets[3], b"hello").status == 200
    assert live.put(tickets[5], b"hello").status == 412
    assert len(live.messages(subject)) == 1


@pytest.mark.parametrize("other", [{"size": 6}, {"sha256": "0" * 64}, {"content_type": "text/html"}])
def test_another_announcement_under_the_same_seqno_is_a_conflict(live: Live, subject: str, other: Any) -> None:
    announced: dict[str, Any] = {"size": 5, "producer_id": "p", "seqno": 1, "content_type": "text/plain"}
    first = live.ticket(subject, **announced)

    answer = live.api("POST", f"/v1/subjects/{subject}/uploads", announced | other)

    assert (answer.status, answer.code) == (409, "upload_conflict")
    assert answer.json["error"]["details"]["upload_id"] == first["upload_id"]


def test_an_inline_message_under_an_announced_seqno_is_refused(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5, producer_id="p", seqno=1)
    answer = named(live, subject, b"other", 1)

    assert (answer.status, answer.code) == (409, "seqno_in_use")
    assert answer.json["error"]["details"]["upload_id"] == ticket["upload_id"]
    assert live.put(ticket, b"hello").status == 200
    assert [live.payload(message) for message in live.messages(subject)] == [b"hello"]


def test_what_waits_is_released_by_an_abort_as_by_a_commit(live: Live, subject: str) -> None:
    first = live.ticket(subject, 1, producer_id="p", seqno=1)
    waiting = named(live, subject, b"second", 2)
    assert (waiting.status, waiting.json["waits_for"]) == (202, first["upload_id"])

    live.api("DELETE", f"/v1/uploads/{first['upload_id']}")

    assert live.receipt(waiting.json["upload_id"])["state"] == "committed"
    assert [live.payload(message) for message in live.messages(subject)] == [b"second"]


def test_a_chain_longer_than_a_transaction_is_released_step_by_step_and_in_order(live: Live, subject: str) -> None:
    first = live.ticket(subject, 4, producer_id="p", seqno=1)
    waiting = batch(live, subject, range(2, 1302))
    assert {result["state"] for result in waiting} == {"stored"}

    live.put(first, b"no 1")
    released = len(live.messages(subject))
    assert released <= 501, "a transaction releases at most 500"
    while len(live.messages(subject)) < 1301:
        before = len(live.messages(subject))
        live.reconcile()
        assert len(live.messages(subject)) > before, "the reconciler goes on where the last transaction stopped"

    messages = live.messages(subject)
    assert [message["offset"] for message in messages] == list(range(1301))
    assert [live.payload(message) for message in messages[::100]] == [b"no %d" % n for n in range(1, 1302, 100)]


def test_a_new_session_aborts_open_tickets_of_the_old_one_and_keeps_what_is_stored(live: Live, subject: str) -> None:
    old = session(live, subject)["epoch"]
    unfinished = live.ticket(subject, 1, producer_id="p", seqno=1, epoch=old)
    stored = live.ticket(subject, 1, producer_id="p", seqno=2, epoch=old)
    live.put(stored, b"2")
    assert live.receipt(stored["upload_id"], wait=0)["state"] == "stored"

    new = session(live, subject)

    assert new["epoch"] > old
    assert live.receipt(unfinished["upload_id"], wait=0)["state"] == "aborted"
    assert live.receipt(stored["upload_id"], wait=0)["state"] == "committed"
    assert new["last_seqno"] == 2


def must_be_fenced(live: Live, subject: str, seqno: int, epoch: int) -> None:
    announced = {"size": 1, "producer_id": "p", "seqno": seqno, "epoch": epoch}
    for answer in (
        named(live, subject, b"zombie", seqno, x_mts_epoch=str(epoch)),
        live.api("POST", f"/v1/subjects/{subject}/uploads", announced),
    ):
        assert (answer.status, answer.code) == (409, "producer_fenced")


def test_a_zombie_of_a_deleted_subject_cannot_publish_to_the_one_made_again(live: Live, subject: str) -> None:
    old = session(live, subject)["epoch"]
    assert named(live, subject, b"old", 5, x_mts_epoch=str(old)).status == 201
    assert live.api("DELETE", f"/v1/subjects/{subject}").status in (200, 202)
    new = session(live, subject)["epoch"]
    assert named(live, subject, b"1", 1, x_mts_epoch=str(new)).status == 201

    must_be_fenced(live, subject, 6, old)
    assert named(live, subject, b"2", 2, x_mts_epoch=str(new)).status == 201
    assert [live.payload(message) for message in live.messages(subject)] == [b"1", b"2"]


def test_a_zombie_cannot_publish_in_any_way(live: Live, subject: str) -> None:
    old = session(live, subject)["epoch"]
    ticket = live.ticket(subject, 6, producer_id="p", seqno=1, epoch=old)
    new = session(live, subject)["epoch"]

    assert live.put(ticket, b"zombie").status == 200, "the store knows of no epochs"
    must_be_fenced(live, subject, 2, old)
    assert named(live, subject, b"alive", 2, x_mts_epoch=str(new)).status == 201
    assert named(live, subject, b"from the future", 3, x_mts_epoch=str(new + 1)).status == 400

    live.reconcile()
    assert [live.payload(message) for message in live.messages(subject)] == [b"alive"]
    listed = live.minio.s3().list_objects_v2(Bucket=live.minio.bucket, Prefix=ticket["object_name"])
    assert listed["KeyCount"] == 0


def test_uploads_side_by_side_become_visible_in_the_producers_order(live: Live, subject: str) -> None:
    tickets = [live.ticket(subject, 2, producer_id="p", seqno=seqno) for seqno in range(10, 30)]

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda ticket: live.put(ticket[1], b"%d" % ticket[0]), enumerate(tickets, 10)))

    eventually(lambda: len(live.messages(subject)) == 20)
    assert [live.payload(message) for message in live.messages(subject)] == [b"%d" % n for n in range(10, 30)]


def test_producers_of_one_name_on_two_subjects_know_nothing_of_each_other(live: Live, subject: str) -> None:
    other = f"{subject}.other"
    assert named(live, subject, b"x", 5).status == 201
    assert named(live, other, b"x", 3).status == 201
    assert (session(live, subject)["last_seqno"], session(live, other)["last_seqno"]) == (5, 3)
