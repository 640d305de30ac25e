"""The way of a message from end to end, as a client sees it: the same on the host and on Lambda."""

from __future__ import annotations

import base64
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

from minitoolstream.client import Client, Item
from tests.e2e.conftest import Target
from tests.live import eventually, send


def test_a_payload_goes_by_a_ticket_and_comes_back_by_a_url(target: Target, subject: str) -> None:
    payload = os.urandom(200_000)
    ticket = target.ticket(subject, len(payload), sha256=hashlib.sha256(payload).hexdigest())
    assert target.put(ticket, payload).status == 200
    receipt = target.receipt(ticket["upload_id"])
    assert receipt["state"] == "committed"
    (message,) = target.messages(subject)
    assert message["sequence"] == receipt["sequence"]
    assert target.payload(message) == payload


def test_a_ticket_holds_the_producer_to_what_it_announced(target: Target, subject: str) -> None:
    ticket = target.ticket(subject, 5)
    assert target.put(ticket, b"too long").status == 403
    assert target.put(ticket, b"right").status == 200
    assert target.put(ticket, b"other").status == 412
    assert target.receipt(ticket["upload_id"])["state"] == "committed"


def test_a_large_payload_goes_in_parts(target: Target, subject: str) -> None:
    payload = os.urandom(11 * 2**20)
    with Client(target.url, target.token) as client:
        receipt = client.publish(subject, payload)
        assert receipt.sequence is not None
        assert client.payload(receipt.sequence) == payload


def test_bytes_that_are_no_text_pass_unchanged(target: Target, subject: str) -> None:
    payload = bytes(range(256))
    assert target.publish(subject, payload).status == 201
    (message,) = target.messages(subject, inline="true")
    assert base64.b64decode(message["data"]) == payload


def test_a_batch_is_one_pack_and_a_header_stays_with_its_message(target: Target, subject: str) -> None:
    with Client(target.url, target.token) as client:
        results = client.publish_batch(subject, [Item(b"%d" % n, headers={"n": str(n)}) for n in range(50)])
        sequences = [result.unwrap().sequence for result in results]
    messages = target.messages(subject)
    assert [message["sequence"] for message in messages] == sequences
    assert [message["headers"]["n"] for message in messages] == [str(n) for n in range(50)]
    assert target.payload(messages[17]) == b"17"


def test_many_at_once_get_a_sequence_each(target: Target, subject: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda n: target.publish(subject, b"%d" % n), range(12)))
    assert [answer.status for answer in answers] == [201] * 12
    assert len({answer.json["sequence"] for answer in answers}) == 12
    assert len(target.messages(subject)) == 12


def test_a_reader_that_waits_is_woken_by_the_commit(target: Target, subject: str) -> None:
    target.publish(subject, b"first")
    path = f"/v1/subjects/{subject}/subscribe?start=new&wait=20"
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(target.api, "GET", path)
        while not waiting.done():  # published until the reader is there to be woken
            target.publish(subject, b"second")
    assert waiting.result().json["messages"]


def test_a_producers_retry_is_a_duplicate(target: Target, subject: str) -> None:
    body = {"size": 2, "producer_id": "p", "seqno": 1}
    ticket = target.api("POST", f"/v1/subjects/{subject}/uploads", body).json
    target.put(ticket, b"ok")
    first = target.receipt(ticket["upload_id"])
    again = target.api("POST", f"/v1/subjects/{subject}/uploads", body).json
    assert (again["sequence"], again["duplicate"]) == (first["sequence"], True)


def test_a_durable_is_read_acked_and_stands_where_it_was_left(target: Target, subject: str) -> None:
    for n in range(3):
        target.publish(subject, b"%d" % n)
    consumer = f"/v1/subjects/{subject}/consumers/d"
    assert target.api("PUT", consumer, {"start": "first"}).status == 201
    page = target.api("GET", f"/v1/subjects/{subject}/messages?durable=d&limit=2").json
    last = page["messages"][-1]["sequence"]
    assert target.api("PUT", consumer, {"last_sequence": last}).status == 200
    assert target.api("GET", consumer).json["lag"] == 1


def test_a_leased_message_is_acked_by_its_lease(target: Target, subject: str) -> None:
    target.publish(subject, b"work")
    consumer = f"/v1/subjects/{subject}/consumers/w"
    assert target.api("PUT", consumer, {"mode": "shared", "start": "first"}).status == 201
    leased = target.api("POST", f"{consumer}/lease", {"limit": 1, "seconds": 30}).json
    sequences = [message["sequence"] for message in leased["messages"]]
    acked = target.api("POST", f"{consumer}/ack", {"lease_id": leased["lease_id"], "sequences": sequences})
    assert acked.status == 200
    assert target.api("GET", consumer).json["lag"] == 0


def test_the_pipelines_stages_are_guarded(target: Target) -> None:
    base, name = "/api/v1/pipeline", f"20250101{os.getpid() % 1_000_000:06}"
    assert target.api("POST", f"{base}/files/register", {"filename": name, "shards": [0]}).json["created"] is True
    early = target.api("POST", f"{base}/stages/shard-splitter/start", {"filename": name, "shard": 0})
    assert early.status == 409
    assert target.api("POST", f"{base}/stages/event-ingest/done", {"filename": name}).status == 200
    started = target.api("POST", f"{base}/stages/shard-splitter/start", {"filename": name, "shard": 0})
    assert started.status == 200, started.body


def test_a_payload_whose_event_was_lost_is_found(target: Target, subject: str) -> None:
    """The reconciler's run; here the event comes too, and one of both is the first."""
    ticket = target.ticket(subject, 4)
    target.put(ticket, b"here")
    assert target.api("POST", "/v1/reconcile").status == 200
    assert target.receipt(ticket["upload_id"])["state"] == "committed"
    assert len(target.messages(subject)) == 1


def test_what_had_its_time_is_swept(target: Target, subject: str) -> None:
    assert target.api("PUT", f"/v1/subjects/{subject}", {"ttl": 1}).status in {200, 201}
    target.publish(subject, b"short")
    (message,) = target.messages(subject)

    def gone() -> bool:
        target.api("POST", "/v1/sweep")
        return not target.messages(subject)

    eventually(gone)
    assert target.api("GET", f"/v1/messages/{message['sequence']}").status == 404


def test_an_error_has_one_shape(target: Target) -> None:
    answer = target.api("POST", "/v1/subjects/a%20b/uploads", {"size": 1})
    assert (answer.status, answer.code) == (400, "bad_request")
    missing = target.api("GET", "/v1/messages/999999999")
    assert missing.status == 404
    assert set(missing.json["error"]) == {"code", "message", "details"}


def test_a_url_that_was_tampered_with_opens_nothing(target: Target, subject: str) -> None:
    target.publish(subject, b"secret")
    (message,) = target.messages(subject)
    headers = {"range": message["range"]} if "range" in message else {}
    assert send("GET", message["url"].replace("X-Amz-Expires=", "X-Amz-Expires=9"), headers=headers).status == 403
