"""Publishing through the real servers: ticket, PUT, event, receipt; inline; batch."""

from __future__ import annotations

import hashlib
import json
import struct

from tests.live import Live, send


def test_a_presigned_put_gets_its_sequence_from_the_event(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5, content_type="text/plain", headers={"kind": "greeting"})

    assert live.put(ticket, b"hello").status == 200

    receipt = live.receipt(ticket["upload_id"], wait=0)
    assert receipt["state"] == "committed"
    (message,) = live.messages(subject)
    assert message["sequence"] == receipt["sequence"]
    assert message["headers"] == {"kind": "greeting"}
    assert live.payload(message) == b"hello"


def test_a_second_put_on_the_same_url_changes_nothing(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    live.put(ticket, b"first")

    assert live.put(ticket, b"other").status == 412
    assert [live.payload(message) for message in live.messages(subject)] == [b"first"]


def test_a_receipt_waits_for_the_commit(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 2)
    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "open"
    live.put(ticket, b"ok")
    assert live.receipt(ticket["upload_id"])["state"] == "committed"


def test_a_payload_in_parts_is_completed_once(live: Live, subject: str) -> None:
    payload = bytes(range(256)) * 4096 * 11
    ticket = live.ticket(subject, len(payload), sha256=hashlib.sha256(payload).hexdigest())
    parts = ticket["parts"]
    size = parts["part_size"]
    chunks = [payload[i : i + size] for i in range(0, len(payload), size)]
    assert parts["count"] == len(chunks)
    upload = f"/v1/uploads/{ticket['upload_id']}"

    assert send("PUT", parts["urls"][0]["url"], chunks[0], parts["urls"][0].get("headers")).status == 200
    incomplete = live.api("POST", f"{upload}/complete")
    assert (incomplete.status, incomplete.code) == (409, "upload_incomplete")
    assert incomplete.json["error"]["details"]["missing"] == list(range(2, len(chunks) + 1))

    arrived = live.api("GET", f"{upload}/parts").json["arrived"]
    assert [(part["number"], part["etag"]) for part in arrived] == [(1, hashlib.md5(chunks[0]).hexdigest())]
    for signed in live.api("POST", f"{upload}/parts", {}).json["urls"]:
        assert send("PUT", signed["url"], chunks[signed["number"] - 1], signed.get("headers")).status == 200
    first = live.api("POST", f"{upload}/complete").json
    assert first["state"] == "committed"
    assert live.api("POST", f"{upload}/complete").json["sequence"] == first["sequence"]
    assert live.payload(live.messages(subject)[0]) == payload


def test_an_abort_is_idempotent_and_leaves_nothing(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 12 * 1024 * 1024)
    part = ticket["parts"]["urls"][0]
    send("PUT", part["url"], bytes(part["size"]))

    for _ in range(2):
        assert live.api("DELETE", f"/v1/uploads/{ticket['upload_id']}").json["state"] == "aborted"

    store = live.minio.s3()
    uploads = store.list_multipart_uploads(Bucket=live.minio.bucket, Prefix=ticket["object_name"])
    assert "Uploads" not in uploads
    assert live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").json["state"] == "aborted"


def test_an_inline_publish_is_answered_with_its_sequence(live: Live, subject: str) -> None:
    answer = live.publish(subject, b"small", x_mts_header_Kind="note")

    assert answer.status == 201
    (message,) = live.messages(subject)
    assert message["sequence"] == answer.json["sequence"]
    assert message["headers"] == {"kind": "note"}
    assert live.payload(message) == b"small"


def test_a_json_message_is_text_unless_it_says_base64(live: Live, subject: str) -> None:
    kind = {"content-type": "application/vnd.mts.message+json"}
    path = f"/v1/subjects/{subject}/messages"
    live.api("POST", path, {"data": "grüße", "headers": {"a": "b"}}, kind)
    live.api("POST", path, {"data": "AAE=", "encoding": "base64"}, kind)

    payloads = [live.payload(message) for message in live.messages(subject)]

    assert payloads == ["grüße".encode(), b"\x00\x01"]


def test_an_idempotency_key_stores_once(live: Live, subject: str) -> None:
    first = live.publish(subject, b"pay", idempotency_key="k1")
    again = live.publish(subject, b"pay", idempotency_key="k1")
    other = live.publish(subject, b"pay more", idempotency_key="k1")

    assert (first.status, again.status) == (201, 200)
    assert again.json["sequence"] == first.json["sequence"]
    assert (other.status, other.code) == (422, "idempotency_conflict")
    assert len(live.messages(subject)) == 1


def test_an_idempotency_key_and_a_producer_exclude_each_other(live: Live, subject: str) -> None:
    answer = live.publish(subject, b"x", idempotency_key="k", x_mts_producer_id="p", x_mts_seqno="1")
    assert (answer.status, answer.code) == (400, "bad_request")


def test_a_batch_of_json_lines_is_one_pack(live: Live, subject: str) -> None:
    lines = [{"data": f"item {i}", "headers": {"n": str(i)}} for i in range(5)]
    body = b"\n".join(json.dumps(line).encode() for line in lines)

    answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})

    assert answer.json["committed"] == 5
    messages = live.messages(subject)
    assert len({message["object_name"] for message in messages}) == 1
    assert [live.payload(message).decode() for message in messages] == [line["data"] for line in lines]
    assert [message["headers"]["n"] for message in messages] == list("01234")


def test_a_batch_of_frames_keeps_its_order(live: Live, subject: str) -> None:
    items = [b"", b"a", bytes(1000)]
    body = b"".join(struct.pack(">I", 0) + struct.pack(">I", len(item)) + item for item in items)

    answer = live.api(
        "POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/vnd.mts.frames"}
    )

    sequences = [result["sequence"] for result in answer.json["results"]]
    assert sequences == list(range(sequences[0], sequences[0] + 3))
    page = live.api("GET", f"/v1/subjects/{subject}/messages?inline=true").json
    assert [message["size"] for message in page["messages"]] == [0, 1, 1000]
    assert page["messages"][0]["data"] == ""


def test_a_batch_that_ends_early_stores_nothing(live: Live, subject: str) -> None:
    body = struct.pack(">I", 0) + struct.pack(">I", 100) + b"short"
    answer = live.api(
        "POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/vnd.mts.frames"}
    )
    assert answer.status == 400
    assert live.messages(subject) == []


def test_a_named_producer_is_visible_in_its_order(live: Live, subject: str) -> None:
    tickets = [live.ticket(subject, 1, producer_id="p", seqno=seqno) for seqno in (1, 2, 3)]
    live.put(tickets[2], b"3")
    waiting = live.receipt(tickets[2]["upload_id"], wait=0)
    assert (waiting["state"], waiting["waits_for"]) == ("stored", tickets[0]["upload_id"])
    inline = live.publish(subject, b"4", x_mts_producer_id="p", x_mts_seqno="4")
    assert (inline.status, inline.json["state"]) == (202, "stored")

    live.put(tickets[1], b"2")
    live.put(tickets[0], b"1")

    assert live.receipt(inline.json["upload_id"])["state"] == "committed"
    assert [live.payload(message) for message in live.messages(subject)] == [b"1", b"2", b"3", b"4"]
    known = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1, "producer_id": "p", "seqno": 2})
    assert (known.status, known.json["duplicate"]) == (200, True)
