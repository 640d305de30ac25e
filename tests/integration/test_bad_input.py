"""Bad input gets a clear error and changes nothing, seen from outside."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from minitoolstream.domain.cid import Cid
from minitoolstream.domain.limits import MIB, TIB
from minitoolstream.domain.subject import new_id
from minitoolstream.host.functions import load_functions
from tests.faults.audit import OWN
from tests.live import Answer, Live, eventually, send

COUNTED = ("watermark", "subjects", "rows", "uploads", "trash", "rejected_events")
JSON_MESSAGE = {"content-type": "application/vnd.mts.message+json"}
LINES = {"content-type": "application/x-ndjson"}
FRAMES = {"content-type": "application/vnd.mts.frames"}
RAW = {"content-type": "text/plain"}
DEEP = 100_000


def counters(live: Live) -> dict[str, Any]:
    status = live.api("GET", "/v1/status").json
    return {name: status[name] for name in COUNTED} | {"objects": objects(live)}


def objects(live: Live) -> int:
    """Payloads and packs: the journal and backups are written by the clock."""
    pages = live.minio.s3().get_paginator("list_objects_v2").paginate(Bucket=live.minio.bucket)
    return sum(not entry["Key"].startswith(OWN) for page in pages for entry in page.get("Contents", ()))


@contextmanager
def unchanged(live: Live) -> Iterator[None]:
    before = counters(live)
    yield
    assert counters(live) == before


def assert_refused(answer: Answer, status: int, code: str, words: str) -> None:
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.body
    error = answer.json["error"]
    assert set(error) == {"code", "message", "details"}
    assert error["code"] == code
    assert words in error["message"]
    assert answer.headers["x-request-id"]


# -- names in the path

SUBJECTS = {
    "a%20b": "subject 'a b'",
    "a%2Fb": "subject 'a/b'",
    "%2e%2e": "subject '..'",
    "..": "subject '..'",
    "-a": "subject '-a'",
    ".hidden": "subject '.hidden'",
    "gr%C3%BCn": "subject 'grün'",
    "a%00": "subject 'a\\x00'",
    "a%0A": "subject 'a\\n'",
    "a" * 241: "1 to 240",
    "": "subject ''",
    "%ff": "`subject` in the path",
    "%zz": "`subject` in the path",
    "a*": "subject 'a*'",
}
SUBJECT_ROUTES: dict[tuple[str, str], tuple[Any, Mapping[str, str]]] = {
    ("POST", "uploads"): ({"size": 1}, {}),
    ("POST", "messages"): (b"x", RAW),
    ("GET", "messages"): (None, {}),
    ("POST", "messages/batch"): (b'{"data":"x"}', LINES),
    ("POST", "producers"): ({"producer_id": "p"}, {}),
    ("GET", "latest"): (None, {}),
}


@pytest.mark.parametrize("route", SUBJECT_ROUTES, ids=" ".join)
def test_a_name_that_is_no_subject(live: Live, route: tuple[str, str]) -> None:
    body, headers = SUBJECT_ROUTES[route]
    with unchanged(live):
        for name, words in SUBJECTS.items():
            answer = live.api(route[0], f"/v1/subjects/{name}/{route[1]}", body, headers)
            assert_refused(answer, 400, "bad_request", words)


UPLOAD_ROUTES = [("GET", ""), ("DELETE", ""), ("GET", "/parts"), ("POST", "/parts"), ("POST", "/complete")]


@pytest.mark.parametrize("route", UPLOAD_ROUTES, ids="".join)
def test_an_id_that_is_no_upload(live: Live, route: tuple[str, str]) -> None:
    with unchanged(live):
        for upload_id in ("1", "x" * 5000, "00000000-0000-4000-8000-000000000000", new_id(1).upper(), "%00", "..%2F"):
            answer = live.api(route[0], f"/v1/uploads/{upload_id}{route[1]}")
            assert_refused(answer, 400, "bad_request", "upload id")
        assert_refused(live.api(route[0], f"/v1/uploads/{new_id(1)}{route[1]}"), 404, "not_found", "no such upload")


@pytest.mark.parametrize("sequence", ["x", "-1", "1.5", "1e3", str(2**63), "%00", "0x10", "%D9%A3"])
def test_a_sequence_that_is_no_number(live: Live, sequence: str) -> None:
    assert_refused(live.api("GET", f"/v1/messages/{sequence}"), 400, "bad_request", "sequence")


# -- bodies

TICKETS: list[tuple[Any, str]] = [
    (b"", "truncated"),
    (b"{", "truncated"),
    (b"\xff\xfe", "malformed"),
    (b"[]", "Expected `object`"),
    (b'"x"', "Expected `object`"),
    (b"null", "Expected `object`"),
    (b'{"size": 1}{"size": 1}', "trailing"),
    (b'{"size": NaN}', "malformed"),
    (b'{"size": Infinity}', "malformed"),
    (b'{"size": 1e400}', "`$.size`"),
    ({}, "`size`"),
    ({"size": "1"}, "`$.size`"),
    ({"size": True}, "`$.size`"),
    ({"size": 1.5}, "`$.size`"),
    ({"size": None}, "`$.size`"),
    ({"size": [1]}, "`$.size`"),
    ({"size": -1}, "size must not be negative"),
    ({"size": 1, "sise": 1}, "unknown field `sise`"),
    ({"size": 1, "content_type": 5}, "`$.content_type`"),
    ({"size": 1, "content_type": "nonsense"}, "content_type 'nonsense'"),
    ({"size": 1, "content_type": "a/b\x00"}, "content_type"),
    ({"size": 1, "content_type": "a/b\r\nx: y"}, "content_type"),
    ({"size": 1, "sha256": "A" * 64}, "sha256"),
    ({"size": 1, "sha256": "a" * 63}, "sha256"),
    ({"size": 1, "headers": ["a"]}, "`$.headers`"),
    ({"size": 1, "headers": {"a": 1}}, "`$.headers[...]`"),
    ({"size": 1, "headers": {"a": None}}, "`$.headers[...]`"),
    ({"size": 1, "headers": {"": "x"}}, "empty name"),
    ({"size": 1, "headers": {str(i): "" for i in range(65)}}, "more than 64 headers"),
    ({"size": 1, "headers": {"a": "x" * 16384}}, "headers are larger than 16384 bytes"),
    ({"size": 1, "headers": {"a": "é" * 8192}}, "headers are larger"),
    ({"size": 1, "headers": {"a": "\ud800"}}, "does not fit"),
    ({"size": 1, "headers": {"\udfff": "a"}}, "does not fit"),
    (b'{"size": 1, "headers": {"a": "\xff"}}', "utf-8"),
    ({"size": 1, "producer_id": "p"}, "needs a seqno"),
    ({"size": 1, "seqno": 1}, "need a producer_id"),
    ({"size": 1, "producer_id": "", "seqno": 1}, "producer_id must have 1 to 2048"),
    ({"size": 1, "producer_id": "p" * 2049, "seqno": 1}, "producer_id must have 1 to 2048"),
    ({"size": 1, "producer_id": "\ud800", "seqno": 1}, "does not fit"),
    ({"size": 1, "producer_id": 5, "seqno": 1}, "`$.producer_id`"),
    ({"size": 1, "producer_id": "p", "seqno": -1}, "seqno must be"),
    ({"size": 1, "producer_id": "p", "seqno": "x"}, "seqno 'x'"),
    ({"size": 1, "producer_id": "p", "seqno": ""}, "seqno ''"),
    ({"size": 1, "producer_id": "p", "seqno": 1.5}, "`$.seqno`"),
    ({"size": 1, "producer_id": "p", "seqno": True}, "`$.seqno`"),
    ({"size": 1, "producer_id": "p", "seqno": 2**63}, "seqno is too large"),
    ({"size": 1, "producer_id": "p", "seqno": str(2**63)}, "seqno is too large"),
    ({"size": 1, "producer_id": "p", "seqno": 1, "epoch": -1}, "epoch must be"),
    ({"size": 1, "producer_id": "p", "seqno": 1, "epoch": 7}, "epoch was never given"),
    ({"size": 1, "sizes": []}, "sizes must list"),
    ({"size": 1, "sizes": [5]}, "sizes need more"),
    ({"size": 99, "sizes": [-1]}, "sizes must not be negative"),
    ({"size": 99, "sizes": [2**70]}, "sizes need more"),
    ({"uploads": []}, "uploads must list"),
    ({"uploads": {}}, "`$.uploads`"),
    ({"uploads": [{"size": 1}] * 1001}, "uploads must list 1 to 1000"),
    ({"uploads": [{"size": 1}, {"size": 1, "x": 1}]}, "unknown field `x` - at `$.uploads[1]`"),
    ({"uploads": [{"size": 1}, {"size": 1, "content_type": "x"}]}, "uploads[1]: content_type"),
    ({"uploads": [{"size": 1}, {"size": 1, "producer_id": "p", "seqno": 1, "epoch": 7}]}, "epoch was never given"),
    ({"uploads": [{"size": 1}], "size": 1}, "unknown field `size`"),
    (b'{"uploads": ' + b"[" * DEEP, "nested too deeply"),
    (b'{"size": 1, "headers": ' + b'{"a":' * DEEP, "`$.headers[...]`"),
]


def test_a_ticket_request_that_does_not_fit(live: Live, subject: str) -> None:
    with unchanged(live):
        for body, words in TICKETS:
            answer = live.api("POST", f"/v1/subjects/{subject}/uploads", body)
            assert_refused(answer, 400, "bad_request", words)


def test_a_header_of_ours_that_an_announcement_does_not_take(live: Live, subject: str) -> None:
    with unchanged(live):
        for name in (*FACTS, "x-mts-transaction-id", "x-mts-header-a"):
            answer = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1}, {name: "1"})
            assert_refused(answer, 400, "bad_request", f"{name!r} has no meaning here")


def test_where_a_client_is_may_be_said_with_every_request(live: Live, subject: str) -> None:
    near = {"x-mts-region": "eu-west"}
    assert live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1}, near).status == 201
    assert live.api("POST", f"/v1/subjects/{subject}/messages", {"data": "x"}, {**JSON_MESSAGE, **near}).status == 201
    assert live.api("GET", "/v1/status", headers=near).status == 200


@pytest.mark.parametrize("size", [5 * TIB + 1, 10**30])
def test_a_payload_that_no_store_takes(live: Live, subject: str, size: int) -> None:
    with unchanged(live):
        answer = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": size})
        assert_refused(answer, 413, "too_large", "size is more than 5 TiB")


FACTS = ("x-mts-producer-id", "x-mts-seqno", "x-mts-epoch", "x-mts-group", "x-mts-codec")
MESSAGES: list[tuple[bytes | dict[str, Any], Mapping[str, str], str]] = [
    (b"x", {"content-type": "nonsense"}, "content_type 'nonsense'"),
    (b"x", {**RAW, "x-mts-header-a": "\xff"}, "'x-mts-header-a' is not valid UTF-8"),
    (b"x", {**RAW, "x-mts-header-": "a"}, "empty name"),
    (b"x", {**RAW, **{f"x-mts-header-{i}": "" for i in range(65)}}, "more than 64 headers"),
    (b"x", {**RAW, **{f"x-mts-header-{i}": "x" * 4000 for i in range(5)}}, "headers are larger"),
    (b"x", {**RAW, "x-mts-producer-id": "p"}, "needs a seqno"),
    (b"x", {**RAW, "x-mts-seqno": "1"}, "need a producer_id"),
    (b"x", {**RAW, "x-mts-producer-id": "\xe9", "x-mts-seqno": "1"}, "is not valid UTF-8"),
    (b"x", {**RAW, "x-mts-producer-id": "p", "x-mts-seqno": "1.5"}, "seqno '1.5'"),
    (b"x", {**RAW, "x-mts-producer-id": "p", "x-mts-seqno": "1", "x-mts-epoch": "x"}, "X-Mts-Epoch 'x'"),
    (b"x", {**RAW, "idempotency-key": "a b"}, "Idempotency-Key"),
    (b"x", {**RAW, "idempotency-key": "k" * 256}, "Idempotency-Key"),
    (b"x", {**RAW, "idempotency-key": "k", "x-mts-producer-id": "p", "x-mts-seqno": "1"}, "exclude each other"),
    (b"{", JSON_MESSAGE, "truncated"),
    (b"", JSON_MESSAGE, "truncated"),
    ({}, JSON_MESSAGE, "`data`"),
    ({"data": 1}, JSON_MESSAGE, "`$.data`"),
    ({"data": "\ud800"}, JSON_MESSAGE, "does not fit"),
    ({"data": "x", "encoding": "hex"}, JSON_MESSAGE, "encoding must be"),
    ({"data": "x!", "encoding": "base64"}, JSON_MESSAGE, "data is not base64"),
    ({"data": "x", "size": 1}, JSON_MESSAGE, "unknown field `size`"),
    ({"data": "x", "producer_id": "p", "seqno": True}, JSON_MESSAGE, "`$.seqno`"),
    (b"x", {**RAW, "X-Mts-Producer": "p"}, "'x-mts-producer' has no meaning here"),
    (b"x", {**RAW, "x-mts-headers-a": "a"}, "'x-mts-headers-a' has no meaning here"),
    ({"data": "x"}, {**JSON_MESSAGE, "x-mts-header-a": "a"}, "'x-mts-header-a' has no meaning here; in a JSON message"),
    *(
        ({"data": "x"}, {**JSON_MESSAGE, name: "1"}, f"{name!r} has no meaning here; in a JSON message")
        for name in FACTS
    ),
]


def test_an_inline_publish_that_does_not_fit(live: Live, subject: str) -> None:
    with unchanged(live):
        for body, headers, words in MESSAGES:
            answer = live.api("POST", f"/v1/subjects/{subject}/messages", body, headers)
            assert_refused(answer, 400, "bad_request", words)


def test_an_epoch_that_was_never_given_leaves_no_trace_of_an_inline_publish(live: Live, subject: str) -> None:
    live.reconcile()
    before = counters(live)
    headers = {"x-mts-producer-id": "p", "x-mts-seqno": "1", "x-mts-epoch": "3"}
    answer = live.api("POST", f"/v1/subjects/{subject}/messages", b"x", {**RAW, **headers})
    assert_refused(answer, 400, "bad_request", "epoch was never given")
    live.reconcile()
    assert counters(live) == before


def framed(*items: tuple[bytes, bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for item in items for part in item)


BATCHES: list[tuple[bytes, Mapping[str, str], str]] = [
    (b"", LINES, "1 to 10000 messages"),
    (b"\n \n", LINES, "1 to 10000 messages"),
    (b'{"data":"x"}', {"content-type": "application/json"}, "application/x-ndjson"),
    (b'{"data":""}\n' * 10_001, LINES, "1 to 10000 messages"),
    (b"", FRAMES, "1 to 10000 messages"),
    (b"\x00", FRAMES, "ends in the middle"),
    (framed((b"", b"payload"))[:-1], FRAMES, "ends in the middle"),
    (b"\xff" * 64, FRAMES, "ends in the middle"),
    *((b'{"data":"x"}', {**LINES, name: "1"}, f"{name!r} has no meaning here") for name in (*FACTS, "x-mts-header-a")),
]
ITEMS: list[tuple[bytes, Mapping[str, str], str]] = [
    (b"{", LINES, "truncated"),
    (b'{"data":"x","x":1}', LINES, "unknown field `x`"),
    (b'{"data":"\\ud800"}', LINES, "does not fit"),
    (b'{"data":"x","headers":{"a":1}}', LINES, "`$.headers[...]`"),
    (b'{"data":"x","producer_id":"p","seqno":"one"}', LINES, "seqno 'one'"),
    (b'{"data":' + b"[" * DEEP, LINES, "`$.data`"),
    (framed((b"[]", b"x")), FRAMES, "Expected `object`"),
    (framed((b'{"size":1}', b"x")), FRAMES, "unknown field `size`"),
    (framed((b'{"content_type":"x"}', b"x")), FRAMES, "content_type 'x'"),
    (framed((b'{"producer_id":"p"}', b"x")), FRAMES, "a producer_id needs a seqno"),
    (framed((b'{"headers":' + b'{"a":' * DEEP, b"x")), FRAMES, "`$.headers[...]`"),
]


def test_a_batch_that_does_not_fit(live: Live, subject: str) -> None:
    with unchanged(live):
        for body, headers, words in BATCHES:
            answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, headers)
            assert_refused(answer, 400, "bad_request", words)


def test_an_item_of_a_batch_that_does_not_fit_is_refused_by_itself(live: Live, subject: str) -> None:
    path = f"/v1/subjects/{subject}/messages/batch"
    with unchanged(live):
        for body, headers, words in ITEMS:
            answer = live.api("POST", path, body, headers).json
            assert (answer["committed"], answer["failed"]) == (0, 1)
            (result,) = answer["results"]
            assert (result["state"], result["error"]["code"]) == ("refused", "bad_request")
            assert words in result["error"]["message"]
    mixed = live.api("POST", path, b'{"data":"a"}\n{"data":1}\n{"data":"b"}', LINES).json
    assert [result["state"] for result in mixed["results"]] == ["committed", "refused", "committed"]
    assert [live.payload(message) for message in live.messages(subject)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "Expected `object`"),
        ({}, "`producer_id`"),
        ({"producer_id": 5}, "`$.producer_id`"),
        ({"producer_id": ""}, "producer_id must have"),
        ({"producer_id": "p" * 2049}, "producer_id must have"),
        ({"producer_id": "p", "epoch": 1}, "unknown field `epoch`"),
    ],
)
def test_a_session_that_does_not_fit(live: Live, subject: str, body: Any, words: str) -> None:
    with unchanged(live):
        answer = live.api("POST", f"/v1/subjects/{subject}/producers", body)
        assert_refused(answer, 400, "bad_request", words)


def test_parts_that_do_not_fit(live: Live, subject: str) -> None:
    upload_id = live.ticket(subject, 12 * MIB)["upload_id"]
    single = live.ticket(subject, 1)["upload_id"]
    cases: list[tuple[Any, str]] = [
        ({"parts": []}, "parts must list"),
        ({"parts": [{"number": 0}]}, "part 0 does not exist"),
        ({"parts": [{"number": 4}]}, "parts 1 to 3"),
        ({"parts": [{"number": 1, "md5": "x" * 32}]}, "md5 of part 1"),
        ({"parts": [{"number": "1"}]}, "`$.parts[0].number`"),
        ({"parts": [{"number": 1, "size": 1}]}, "unknown field `size`"),
        ({"start": 0}, "start must be"),
        ({"start": 4}, "start must be"),
        ({"begin": 1}, "unknown field `begin`"),
    ]
    with unchanged(live):
        for body, words in cases:
            assert_refused(live.api("POST", f"/v1/uploads/{upload_id}/parts", body), 400, "bad_request", words)
        assert_refused(live.api("GET", f"/v1/uploads/{single}/parts"), 400, "bad_request", "single PUT")
    for ticket in (upload_id, single):
        live.api("DELETE", f"/v1/uploads/{ticket}")


# -- queries

QUERIES = {
    "limit=0": "limit must be between 1 and 1000",
    "limit=1001": "limit must be between 1 and 1000",
    "limit=999999999999999999999": "limit",
    "limit=-1": "limit '-1'",
    "limit=1.5": "limit '1.5'",
    "limit=": "limit ''",
    "limit=1&limit=2": "`limit` is given twice",
    "limits=1": "unknown query parameter `limits`",
    "start=1&begin=2&end=3": "`begin`, `end`",
    "start=yesterday": "start 'yesterday'",
    "start=-1": "start '-1'",
    f"start={2**63}": "start is too large",
    "partition=x": "partition 'x'",
    "inline=yes": "inline must be true or false",
    "view=rows": "view must be one of messages, extents",
    "start=%ff": "not percent-encoded UTF-8",
    "start=%zz": "not percent-encoded UTF-8",
}


def test_a_query_that_does_not_fit(live: Live, subject: str) -> None:
    with unchanged(live):
        for query, words in QUERIES.items():
            answer = live.api("GET", f"/v1/subjects/{subject}/messages?{query}")
            assert_refused(answer, 400, "bad_request", words)
        assert_refused(live.api("GET", "/v1/status?x=1"), 400, "bad_request", "this call takes none")


@pytest.mark.parametrize("wait", ["-1", "25.5", "nan", "inf", "-inf", "x", "", "1e999", "1_0", "%D9%A3", "true"])
def test_a_wait_that_is_no_time(live: Live, wait: str) -> None:
    answer = live.api("GET", f"/v1/uploads/{new_id(1)}?wait={wait}")
    assert_refused(answer, 400, "bad_request", "wait must be 0 to 25 seconds")


# -- the token

ROUTES = sorted({(route.method, route.path) for _, route in load_functions().routes})
VALUES = {"{subject}": "orders", "{upload_id}": new_id(1), "{sequence}": "1"}


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_no_route_opens_without_the_token(live: Live, route: tuple[str, str]) -> None:
    method, path = route
    for name, value in VALUES.items():
        path = path.replace(name, value)
    wrong = [None, "Bearer", "Bearer wrong", f"Bearer {live.token}x", f"Basic {live.token}", live.token, "Bearer \xff"]
    with unchanged(live):
        for given in wrong:
            headers = {"content-type": "application/json"} | ({"authorization": given} if given is not None else {})
            answer = send(method, live.url + path, b'{"size": 1}' if method == "POST" else None, headers)
            if path.startswith("/pins"):  # the errors of the IPFS Pinning Service API have a shape of their own
                assert (answer.status, answer.json["error"]["reason"]) == (401, "UNAUTHORIZED")
                assert "token" in answer.json["error"]["details"]
            else:
                assert_refused(answer, 401, "unauthorized", "token")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_request_is_not_read_before_its_token_is(live: Live) -> None:
    answer = send("POST", f"{live.url}/v1/subjects/a%20b/uploads?x=1", b"{", {"authorization": "Bearer wrong"})
    assert_refused(answer, 401, "unauthorized", "wrong")


# -- too large


def test_an_inline_body_above_the_limit_is_told_the_way_by_ticket(live: Live, subject: str) -> None:
    with unchanged(live):
        for route, limit in (("messages", 4 * MIB), ("messages/batch", 16 * MIB)):
            answer = live.api("POST", f"/v1/subjects/{subject}/{route}", bytes(limit + 1), RAW)
            assert_refused(answer, 413, "too_large", "POST /v1/subjects/{subject}/uploads")
            assert answer.json["error"]["details"]["limit"] == limit
        answer = live.api("POST", f"/v1/subjects/{subject}/uploads", b" " * (MIB + 1))
        assert_refused(answer, 413, "too_large", "larger than 1,048,576 bytes")


def test_a_batch_with_too_much_metadata_is_refused(live: Live, subject: str) -> None:
    line = json.dumps({"data": "", "headers": {"h": "x" * 1000}})
    lines = "\n".join(line.replace("x", str(i % 10), 1) for i in range(400))
    with unchanged(live):
        answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", lines.encode(), LINES)
        assert_refused(answer, 413, "too_large", "bytes of metadata")


# -- the connection itself


def raw_exchange(live: Live, request: bytes) -> bytes:
    """Sends these bytes, ends its side, and returns all that comes."""
    address = urlsplit(live.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def head(live: Live, path: str, length: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {live.token}",
        "Content-Type: text/plain",
        length,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("route", ["uploads", "messages", "messages/batch"])
def test_a_body_that_ends_early_is_no_request(live: Live, subject: str, route: str) -> None:
    path = f"/v1/subjects/{subject}/{route}"
    with unchanged(live):
        for length, body in (("Content-Length: 100", b'{"size": 1}'), ("Transfer-Encoding: chunked", b"5\r\nhel")):
            answer = raw_exchange(live, head(live, path, length) + body)
            assert b" 2" not in answer[:12]
    assert live.publish(subject, b"still there").status == 201


@pytest.mark.parametrize(
    "length", ["Content-Length: -1", "Content-Length: x", "Content-Length: 1\r\nContent-Length: 2"]
)
def test_a_request_that_is_no_http_is_refused(live: Live, subject: str, length: str) -> None:
    with unchanged(live):
        answer = raw_exchange(live, head(live, f"/v1/subjects/{subject}/messages", length) + b"x")
        assert answer.startswith(b"HTTP/1.1 400")


def test_methods_and_paths_that_are_not_there(live: Live) -> None:
    with unchanged(live):
        wrong = live.api("PUT", "/v1/subjects/orders/messages", b"x")
        assert_refused(wrong, 405, "method_not_allowed", "PUT")
        assert wrong.headers["allow"] == "GET, POST"
        for path in ("/v2/status", "/v1", "/v1/subjects/orders/", "/v1/subjects/orders/messages/", "/v1//status", "//"):
            assert_refused(live.api("GET", path), 404, "not_found", "no such path")


# -- what the store refuses


def test_a_put_that_is_not_the_announced_one_stores_nothing(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5, content_type="text/plain", sha256="0" * 64)
    headers: dict[str, str] = ticket["headers"]
    first, rest = ticket["url"].split("?", 1)
    attempts: list[tuple[str, bytes, dict[str, str]]] = [
        (ticket["url"], b"four", headers),
        (ticket["url"], b"sixsix", headers),
        (ticket["url"], b"hello", {**headers, "content-type": "text/html"}),
        (ticket["url"], b"hello", {k: v for k, v in headers.items() if k.lower() != "if-none-match"}),
        (ticket["url"], b"hello", headers),
        (f"{first}x?{rest}", b"hello", headers),
        (f"{first}?{rest}0", b"hello", headers),
    ]
    with unchanged(live):
        for url, body, sent in attempts:
            assert send("PUT", url, body, sent).status in {400, 403, 411}
    assert live.receipt(ticket["upload_id"], wait=0)["state"] == "open"
    live.api("DELETE", f"/v1/uploads/{ticket['upload_id']}")


def test_what_was_refused_does_not_come_back_later(live: Live, subject: str) -> None:
    live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": -1})
    live.reconcile()
    assert subject not in [entry["subject"] for entry in live.api("GET", "/v1/subjects?limit=1000").json["subjects"]]
    eventually(lambda: live.api("GET", f"/v1/subjects/{subject}/latest").json["latest_sequence"] == 0)


def test_a_batch_has_up_to_a_hundred_thousand_contents(live: Live) -> None:
    """On a host without peers, which begins it and leaves it to others."""
    cids = [Cid(0x55, number.to_bytes(32, "big")).text for number in range(100_001)]
    path = "/v1/catalog/batches"
    refused = live.api("POST", path, {"kind": "unpin", "cids": cids})
    assert (refused.status, refused.code) == (400, "bad_request")
    made = live.api("POST", path, {"kind": "unpin", "cids": cids[:-1]})
    assert (made.status, made.json["total"], made.json["state"]) == (202, 100_000, "running")
    last = live.api("GET", f"{path}/{made.json['batch_id']}/items?after=99997").json
    assert [(item["position"], item["cid"]) for item in last["items"]] == [(99_998, cids[-3]), (99_999, cids[-2])]
    assert "next" not in last
