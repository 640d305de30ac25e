"""What a ticket allows and what it leaves behind (promises 5, 6 and 8; rules 6, 11, 12, 14, 22)."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import tarfile
import time
import zlib
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.faults.audit import OWN
from tests.live import Live, eventually, send

UPLOAD_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def keys(live: Live) -> set[str]:
    pages = live.minio.s3().get_paginator("list_objects_v2").paginate(Bucket=live.minio.bucket)
    found = {item["Key"] for page in pages for item in page.get("Contents", ())}
    return {key for key in found if not key.startswith(OWN)}


def frames(*items: tuple[dict[str, Any], bytes]) -> bytes:
    packed = b""
    for meta, payload in items:
        head = json.dumps(meta).encode()
        packed += struct.pack(">I", len(head)) + head + struct.pack(">I", len(payload)) + payload
    return packed


def publish_frames(live: Live, subject: str, body: bytes) -> Any:
    kind = {"content-type": "application/vnd.mts.frames"}
    return live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, kind)


def test_upload_ids_are_in_the_order_of_time_and_keys_say_whose_they_are(live: Live, subject: str) -> None:
    tickets = [live.ticket(subject, 1) for _ in range(5)]

    prefixes = [ticket["upload_id"][:13] for ticket in tickets]
    assert prefixes == sorted(prefixes)
    for ticket in tickets:
        assert UPLOAD_ID.fullmatch(ticket["upload_id"])
        assert re.fullmatch(rf"m/{subject}/\d+/{ticket['upload_id']}", ticket["object_name"])


UNSAFE_NAMES = (".", "..", ".hidden", "-dash", "_mts", "a%2Fb", "a%20b", "a%00b", "%C3%BC", "a%0A", "a" * 241, "*")


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_a_name_that_would_not_be_safe_as_a_key_is_refused(live: Live, name: str) -> None:
    before = keys(live)
    for path, body in (("uploads", b'{"size": 1}'), ("messages", b"x"), ("messages/batch", b"")):
        answer = live.api("POST", f"/v1/subjects/{name}/{path}", body)
        assert answer.status in {400, 404}, answer.body
        assert answer.json["error"]["message"]
    assert keys(live) == before


@pytest.mark.parametrize("name", ["a", "A.b-c_d", "0", "a" * 240, "orders.dlq"])
def test_every_name_the_rule_allows_works(live: Live, name: str) -> None:
    ticket = live.ticket(name, 2)
    assert live.put(ticket, b"ok").status == 200
    assert live.receipt(ticket["upload_id"])["state"] == "committed"


def test_a_subject_that_begins_like_another_is_another(live: Live, subject: str) -> None:
    live.publish(subject, b"one")
    live.publish(f"{subject}1", b"two")
    live.publish(f"{subject}.x", b"three")

    assert [live.payload(message) for message in live.messages(subject)] == [b"one"]


def test_the_length_is_signed_but_not_listed(live: Live, subject: str) -> None:
    """Browsers send it themselves, and may not set it (rule 11)."""
    ticket = live.ticket(subject, 5)

    assert "content-length" not in {name.lower() for name in ticket["headers"]}
    assert ticket["headers"]["If-None-Match"] == "*"
    for payload in (b"four", b"sixsix", b""):
        assert live.put(ticket, payload).status == 403
    assert live.put(ticket, b"fives").status == 200


@pytest.mark.parametrize("header", ["If-None-Match", "Content-Type", "x-amz-checksum-sha256"])
def test_a_signed_header_left_out_or_changed_stores_nothing(live: Live, subject: str, header: str) -> None:
    digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    ticket = live.ticket(subject, 5, sha256=digest, content_type="text/plain")
    without = {name: value for name, value in ticket["headers"].items() if name != header}

    assert send("PUT", ticket["url"], b"hello", without).status in {400, 403}
    assert send("PUT", ticket["url"], b"hello", {**without, header: "AAAA"}).status in {400, 403}
    assert send("PUT", ticket["url"], b"jello", ticket["headers"]).status == 400, "another payload, same size"
    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "open"
    assert live.put(ticket, b"hello").status == 200


@pytest.mark.parametrize(
    "change", [("m/", "m%2F.."), ("X-Amz-Expires=", "X-Amz-Expires=1"), ("X-Amz-Date=2", "X-Amz-Date=3")]
)
def test_a_tampered_url_stores_nothing(live: Live, subject: str, change: tuple[str, str]) -> None:
    ticket = live.ticket(subject, 5)
    tampered = dict(ticket, url=ticket["url"].replace(*change, 1))
    before = keys(live)

    assert live.put(tampered, b"hello").status in {400, 403, 404}
    assert keys(live) == before


def test_a_named_producers_object_carries_what_recovery_needs(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5, producer_id="till 7/ü", seqno=9)
    large = live.ticket(subject, 6 * 2**20, producer_id="till 7/ü", seqno=10)
    live.put(ticket, b"hello")
    size = large["parts"]["part_size"]
    for part in large["parts"]["urls"]:
        send("PUT", part["url"], bytes(6 * 2**20)[(part["number"] - 1) * size :][: part["size"]])
    live.api("POST", f"/v1/uploads/{large['upload_id']}/complete")

    for made, seqno in ((ticket, "9"), (large, "10")):
        head = live.minio.s3().head_object(Bucket=live.minio.bucket, Key=made["object_name"])
        assert head["Metadata"] == {"mts-producer": "till%207%2F%C3%BC", "mts-seqno": seqno}


def test_a_packs_head_carries_what_recovery_needs(live: Live, subject: str) -> None:
    publish_frames(live, subject, frames(({"producer_id": "p", "seqno": 4, "headers": {"a": "b"}}, b"payload")))
    (message,) = live.messages(subject)

    body = live.minio.s3().get_object(Bucket=live.minio.bucket, Key=message["object_name"])["Body"].read()

    assert body[:5] == b"MTSP\x01"
    (length,) = struct.unpack(">I", body[5:9])
    (group,) = json.loads(body[9 : 9 + length])
    assert (group["subject"], group["headers"], group["sizes"]) == (subject, {"a": "b"}, [7])
    assert (group["marks"][0]["producer_id"], group["marks"][0]["seqno"]) == ("p", 4)


def test_a_row_that_would_be_too_large_is_refused_before_anything_is_stored(live: Live, subject: str) -> None:
    before = keys(live)
    many = frames(*[({}, b"")] * 10_001)
    wide = frames(*[({"headers": {str(number): "v" * 1000}}, b"") for number in range(300)])

    for body, status in ((many, 400), (wide, 413)):
        answer = publish_frames(live, subject, body)
        assert answer.status == status
        assert re.search(r"10,?000|262,?144", answer.json["error"]["message"]), "it says how much is allowed"
    announced = {"size": 10**6, "sizes": [1] * 10_001}
    assert live.api("POST", f"/v1/subjects/{subject}/uploads", announced).status == 400
    assert keys(live) == before
    assert live.messages(subject) == []


def test_the_largest_pack_is_one_row_and_every_message_of_it_is_found(live: Live, subject: str) -> None:
    answer = publish_frames(live, subject, frames(*[({}, b"%d" % number) for number in range(10_000)])).json

    assert answer["committed"] == 10_000
    extents = live.api("GET", f"/v1/subjects/{subject}/messages?view=extents&limit=1").json["extents"]
    assert (len(extents), extents[0]["count"]) == (1, 10_000)
    first = answer["results"][0]["sequence"]
    for number in (0, 1, 5_000, 9_999):
        message = live.api("GET", f"/v1/messages/{first + number}").json
        assert (message["offset"], live.payload(message)) == (number, b"%d" % number)


def test_the_url_of_a_packed_message_shows_that_message_and_not_its_neighbours(live: Live, subject: str) -> None:
    publish_frames(live, subject, frames(({}, b"mine"), ({}, b"secret of another"), ({}, b"mine too")))
    message = live.messages(subject)[0]

    assert live.payload(message) == b"mine"
    first, last = (int(number) for number in message["range"].removeprefix("bytes=").split("-"))
    assert send("GET", message["url"]).status in {400, 403}
    for other in (f"0-{last}", f"{first}-{last + 20}", f"{first}-", f"{last + 9}-{last + 20}"):
        answer = send("GET", message["url"], headers={"range": f"bytes={other}"})
        assert answer.status in {400, 403}, other
        assert b"secret" not in answer.body


def test_a_failed_announcement_of_many_makes_no_ticket_at_all(live: Live, subject: str) -> None:
    live.publish(subject, b"x", x_mts_producer_id="p", x_mts_seqno="5")
    before = live.api("GET", "/v1/status").json["uploads"]
    announced = [{"size": 1}, {"size": 1, "producer_id": "p", "seqno": 4}, {"size": 1}]

    answer = live.api("POST", f"/v1/subjects/{subject}/uploads", {"uploads": announced})

    assert (answer.status, answer.code) == (409, "seqno_skipped")
    assert live.api("GET", "/v1/status").json["uploads"] == before


def test_a_receipt_waits_without_asking_the_database_again_and_again(live: Live, subject: str) -> None:
    host = live.add_host()  # of its own: its counters begin at nothing
    live.hosts.remove(host)
    own = replace(live, hosts=[host])
    ticket = own.ticket(subject, 2)

    assert own.receipt(ticket["upload_id"], wait=1.5)["state"] == "open"

    # A look when it comes, one when it begins to wait, and one when the watcher's first answer wakes it.
    assert 1 <= eventually(lambda: _looks_at_uploads(own)) <= 3
    host.stop()


def _looks_at_uploads(live: Live) -> float:
    page = send("GET", f"{live.url}/metrics").body.decode()
    counted = re.findall(r'tarantool_operations_total\{operation="upload_get",.*\} (\S+)', page)
    return sum(float(count) for count in counted)


def test_a_ticket_s_url_cannot_be_turned_into_a_copy(live: Live, subject: str) -> None:
    """MinIO takes a PUT with an unsigned x-amz-copy-source for CopyObject, which ignores what was signed."""
    victim, other = live.ticket(subject, 6), live.ticket(subject, 9)
    live.put(victim, b"AAAAAA")
    live.put(other, b"BBBBBBBBB")
    source = {"x-amz-copy-source": f"/{live.minio.bucket}/{other['object_name']}"}
    assert send("PUT", victim["url"], b"CCCCCC", {**victim["headers"], **source}).status == 403
    large = live.ticket(subject, 12 * 1024 * 1024)
    part = large["parts"]["urls"][0]
    assert send("PUT", part["url"], b"", {**part.get("headers", {}), **source}).status == 403
    assert live.payload(live.messages(subject)[0]) == b"AAAAAA"


@pytest.mark.parametrize(
    "unsigned",
    [
        {"x-minio-source-replication-request": "true", "x-minio-source-mtime": "2001-01-01T00:00:00Z"},
        {"x-minio-source-etag": "0123456789abcdef0123456789abcdef"},
        {"x-amz-replication-status": "REPLICA"},
        {"x-minio-extract": "true"},
        {"content-encoding": "gzip", "x-amz-storage-class": "REDUCED_REDUNDANCY", "x-amz-acl": "public-read"},
    ],
)
def test_no_unsigned_header_lets_a_ticket_write_twice(live: Live, subject: str, unsigned: dict[str, str]) -> None:
    """MinIO's servers speak to each other with headers that any holder of a URL can send as well."""
    ticket = live.ticket(subject, 5)
    sent = {**ticket["headers"], **unsigned}
    statuses = [send("PUT", ticket["url"], body, sent).status for body in (b"first", b"other")]
    live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete", {})

    assert statuses in ([200, 412], [403, 403])
    assert [live.payload(message) for message in live.messages(subject)] == [b"first"] * statuses.count(200)


def archive(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def forged(access_key: str) -> tuple[str, dict[str, str]]:
    """What anyone can write who has seen one of our URLs, as a query and as a header: the access key stands in each."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope, signature = f"{access_key}/{now[:8]}/us-east-1/s3/aws4_request", "0" * 64
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": scope,
        "X-Amz-Date": now,
        "X-Amz-Expires": "600",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": signature,
    }
    line = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={signature}"
    return urlencode(query), {"authorization": line, "x-amz-date": now}


@pytest.mark.parametrize("way", ["query", "header"])
@pytest.mark.parametrize("what", ["payload", "archive"])
def test_the_access_key_alone_writes_nothing(live: Live, subject: str, way: str, what: str) -> None:
    """MinIO does not look at every signature when a body has an unsigned trailer (CVE-2026-40344, CVE-2026-41145)."""
    victim = live.ticket(subject, 6)
    live.put(victim, b"AAAAAA")
    query, headers = forged(live.minio.access_key)
    url = f"{live.minio.endpoint}/{live.minio.bucket}/{victim['object_name']}"
    sent = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", **(headers if way == "header" else {})}
    if what == "archive":
        body = archive(victim["object_name"], b"EVIL!!")
        sent["x-amz-meta-snowball-auto-extract"] = "true"
    else:
        checksum = base64.b64encode(struct.pack(">I", zlib.crc32(b"EVIL!!"))).decode()
        body = f"6\r\nEVIL!!\r\n0\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n".encode()
        sent |= {"x-amz-decoded-content-length": "6", "x-amz-trailer": "x-amz-checksum-crc32"}
        sent["content-encoding"] = "aws-chunked"

    refused = send("PUT", f"{url}?{query}" if way == "query" else url, body, sent)

    assert refused.status == 403, refused.body
    assert live.payload(live.messages(subject)[0]) == b"AAAAAA"
