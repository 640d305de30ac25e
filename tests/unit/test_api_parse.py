"""From requests to the domain's words: what fits is read, what does not is said by field."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.api import parse, parse_delivery
from minitoolstream.api.app import Request
from minitoolstream.api.schema import InlineRequest, UploadRequest
from minitoolstream.domain import media_types
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import AlikeMessages, InlineMessage
from minitoolstream.domain.upload import UploadSpec

DEEP = 200_000


def request(
    body: bytes | Any = b"", headers: dict[str, str] | None = None, subject: str = "orders", **more: Any
) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "/", {"subject": subject, **more}, {}, headers or {}, raw, "r")


def refusal(call: Any, *arguments: Any) -> MtsError:
    with pytest.raises(MtsError) as caught:
        call(*arguments)
    return caught.value


def message(call: Any, *arguments: Any) -> str:
    error = refusal(call, *arguments)
    assert error.code == "bad_request"
    return error.message


# -- tickets


def test_one_upload_and_many() -> None:
    body = {"size": 3, "content_type": "a/b", "headers": {"a": "b"}, "producer_id": "p", "seqno": "9"}
    spec = UploadSpec(3, "a/b", headers={"a": "b"}, producer_id="p", seqno=9)
    assert parse.uploads_of(request(body)) == ([spec], True)
    assert parse.uploads_of(request({"uploads": [body, {"size": 0}]})) == (
        [spec, UploadSpec(0, "application/octet-stream")],
        False,
    )


def test_the_word_uploads_elsewhere_does_not_make_it_many() -> None:
    specs, single = parse.uploads_of(request({"size": 1, "headers": {"uploads": "x"}}))
    assert (single, specs[0].headers) == (True, {"uploads": "x"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"size": 1} x', "trailing"),
        (b'{"size": "1"}', "`$.size`"),
        (b'{"size": true}', "`$.size`"),
        (b'{"size": null}', "`$.size`"),
        (b'{"size": 1.5}', "`$.size`"),
        (b'{"size": 1e999}', "`$.size`"),
        (b'{"size": NaN}', "malformed"),
        (b'{"size": Infinity}', "malformed"),
        (b"{}", "`size`"),
        (b'{"size": 1, "sise": 2}', "unknown field `sise`"),
        (b'{"size": 1, "headers": []}', "`$.headers`"),
        (b'{"size": 1, "headers": {"a": 1}}', "`$.headers[...]`"),
        (b'{"size": 1, "headers": {"a": "\\ud800"}}', "does not fit"),
        (b'{"size": 1, "headers": {"a": "\xff"}}', "utf-8"),
        (b'{"size": 1, "seqno": 1.5, "producer_id": "p"}', "`$.seqno`"),
        (b'{"size": 1, "seqno": true, "producer_id": "p"}', "`$.seqno`"),
        (b'{"size": 1, "epoch": "1", "producer_id": "p"}', "`$.epoch`"),
        (b'{"size": 1, "sizes": ["1"]}', "`$.sizes[0]`"),
        pytest.param(b'{"size": 1, "headers": ' + b'{"a":' * DEEP, "does not fit", id="deep headers"),
        pytest.param(b'{"uploads": ' + b"[" * DEEP, "nested too deeply", id="deep uploads"),
        (b'{"uploads": {}}', "`$.uploads`"),
        (b'{"uploads": []}', "1 to 1000"),
        (b'{"uploads": [{"size": 1}, {"size": 1, "x": 1}]}', "unknown field `x` - at `$.uploads[1]`"),
        (b'{"uploads": [{"size": 1}, {"size": -1}]}', "uploads[1]: size"),
        (b'{"uploads": [], "more": 1}', "unknown field `more`"),
        (b'{"size": 123456789012345678901234567890123}', None),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_the_place(body: bytes, words: str | None) -> None:
    error = refusal(parse.uploads_of, request(body))
    if words is None:
        assert error.code == "too_large"
    else:
        assert error.code == "bad_request"
        assert words in error.message


def test_at_most_a_thousand_tickets_at_once() -> None:
    assert len(parse.uploads_of(request({"uploads": [{"size": 1}] * 1000}))[0]) == 1000
    assert "1 to 1000" in message(parse.uploads_of, request({"uploads": [{"size": 1}] * 1001}))


@given(st.binary(max_size=80))
def test_no_bytes_make_reading_json_fail_otherwise(body: bytes) -> None:
    for kind in (UploadRequest, InlineRequest):
        try:
            parse.decode(body, kind)
        except MtsError as error:
            assert error.code == "bad_request"  # noqa: PT017 - what fits is fine too


# -- parts


def test_parts_by_number_or_from_a_start() -> None:
    assert parse.parts_of(request()) == (None, 1)
    assert parse.parts_of(request({"start": 5})) == (None, 5)
    assert parse.parts_of(request({"parts": [{"number": 2, "md5": "0" * 32}, {"number": 1}]})) == (
        [(2, "0" * 32), (1, None)],
        1,
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"parts": []}, "1 to 1000"),
        ({"parts": [{"number": 1}] * 1001}, "1 to 1000"),
        ({"parts": [{"number": 1, "md5": "0" * 31}]}, "md5 of part 1"),
        ({"parts": [{"number": 1, "md5": "A" * 32}]}, "md5 of part 1"),
        ({"parts": [{"number": 1, "etag": "x"}]}, "unknown field `etag`"),
        ({"start": "1"}, "`$.start`"),
    ],
)
def test_wrong_parts_are_refused(body: Any, words: str) -> None:
    assert words in message(parse.parts_of, request(body))


# -- inline


def test_a_raw_body_is_the_payload() -> None:
    headers = {
        "content-type": "application/json",
        "x-mts-header-kind": "greeting",
        "x-mts-header-who": "grüße".encode().decode("latin-1"),
        "x-mts-producer-id": "é".encode().decode("latin-1"),
        "x-mts-seqno": "7",
        "x-mts-epoch": "2",
    }
    assert parse.inline_of(request(b"{", headers)) == InlineMessage(
        "orders", b"{", "application/json", {"kind": "greeting", "who": "grüße"}, "é", 7, 2
    )
    assert parse.inline_of(request(b"")).content_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"x-mts-header-who": "\xff"}, "'x-mts-header-who' is not valid UTF-8"),
        ({"x-mts-header-": "x"}, "empty name"),
        ({"x-mts-producer-id": "\xe9", "x-mts-seqno": "1"}, "is not valid UTF-8"),
        ({"x-mts-producer-id": "p"}, "needs a seqno"),
        ({"x-mts-seqno": "1"}, "need a producer_id"),
        ({"x-mts-producer-id": "p", "x-mts-seqno": "x"}, "seqno 'x'"),
        ({"x-mts-producer-id": "p", "x-mts-seqno": "1", "x-mts-epoch": "-1"}, "X-Mts-Epoch '-1'"),
        ({"content-type": "nonsense"}, "content_type 'nonsense'"),
        ({"idempotency-key": "a b"}, "Idempotency-Key"),
        ({"idempotency-key": "k", "x-mts-producer-id": "p", "x-mts-seqno": "1"}, "exclude each other"),
    ],
)
def test_wrong_headers_are_refused_by_name(headers: dict[str, str], words: str) -> None:
    assert words in message(parse.inline_of, request(b"x", headers))


JSON = {"content-type": media_types.JSON_MESSAGE + "; charset=utf-8"}


def test_a_json_message_is_text_or_base64() -> None:
    text = parse.inline_of(request({"data": "grüße", "headers": {"a": "b"}}, {**JSON, "idempotency-key": "k"}))
    assert (text.data, text.content_type, text.headers, text.key) == (
        "grüße".encode(),
        "text/plain; charset=utf-8",
        {"a": "b"},
        "k",
    )
    binary = parse.inline_of(request({"data": "AAE=", "encoding": "base64"}, JSON))
    assert (binary.data, binary.content_type) == (b"\x00\x01", "application/octet-stream")
    assert parse.inline_of(request({"data": "x", "content_type": "a/b"}, JSON)).content_type == "a/b"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "`data`"),
        ({"data": 5}, "`$.data`"),
        ({"data": "%", "encoding": "base64"}, "data is not base64"),
        ({"data": "x", "encoding": "hex"}, "encoding must be"),
        ({"data": "x", "content_type": "x"}, "content_type"),
        ({"data": "x", "seqno": 1}, "need a producer_id"),
        ({"data": "x", "key": "k"}, "unknown field `key`"),
    ],
)
def test_a_wrong_json_message_is_refused(body: Any, words: str) -> None:
    assert words in message(parse.inline_of, request(body, JSON))


# -- batch


def framed(*items: tuple[Any, bytes]) -> bytes:
    fields = []
    for meta, data in items:
        described = b"" if meta is None else meta if isinstance(meta, bytes) else json.dumps(meta).encode()
        fields += [struct.pack(">I", len(described)), described, struct.pack(">I", len(data)), data]
    return b"".join(fields)


FRAMES, LINES = {"content-type": media_types.FRAMES}, {"content-type": media_types.JSON_LINES}


def items_of(body: bytes, headers: dict[str, str]) -> list[InlineMessage | MtsError]:
    items = parse.batch_of(request(body, headers))
    assert isinstance(items, list)
    return items


def test_a_batch_of_frames() -> None:
    meta = {"content_type": "a/b", "headers": {"h": "1"}, "producer_id": "p", "seqno": "3", "epoch": 1}
    items = items_of(framed((None, b"x"), (meta, b""), (meta, b"y"), ({}, b"z")), FRAMES)
    assert items == [
        InlineMessage("orders", b"x", "application/octet-stream"),
        InlineMessage("orders", b"", "a/b", {"h": "1"}, "p", 3, 1),
        InlineMessage("orders", b"y", "a/b", {"h": "1"}, "p", 3, 1),
        InlineMessage("orders", b"z", "application/octet-stream"),
    ]


@pytest.mark.parametrize("meta", [None, {}, {"content_type": "a/b", "headers": {"h": "1"}}])
def test_frames_with_the_same_metadata_are_read_together(meta: Any) -> None:
    found = parse.batch_of(request(framed((meta, b"x"), (meta, b""), (meta, b"y")), FRAMES))
    described = meta or {"content_type": "application/octet-stream", "headers": {}}
    like = InlineMessage("orders", b"", described["content_type"], described["headers"])
    assert found == AlikeMessages(like, [b"x", b"", b"y"])


def test_frames_of_one_producer_are_never_read_together() -> None:
    meta = {"producer_id": "p", "seqno": 1}
    like = InlineMessage("orders", b"x", "application/octet-stream", {}, "p", 1)
    assert items_of(framed((meta, b"x"), (meta, b"x")), FRAMES) == [like, like]


def test_wrong_metadata_that_all_frames_share_is_told_for_each() -> None:
    items = items_of(framed(({"seqno": 1}, b"x"), ({"seqno": 1}, b"y")), FRAMES)
    assert [isinstance(item, MtsError) for item in items] == [True, True]


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl; charset=utf-8"])
def test_a_batch_of_json_lines(kind: str) -> None:
    body = b'{"data":"a"}\n\n {"data":"b","producer_id":"p","seqno":1}\r\n'
    items = items_of(body, {"content-type": kind})
    assert [(item.data, item.seqno) for item in items if isinstance(item, InlineMessage)] == [(b"a", None), (b"b", 1)]


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b"", LINES, "1 to 10000"),
        (b"", FRAMES, "1 to 10000"),
        (framed((None, b""))[:-1], FRAMES, "ends in the middle"),
        (b"{}", {"content-type": "application/json"}, "not application/json"),
        (b"{}", {}, "without a content type"),
        pytest.param(b'{"data":""}\n' * 10_001, LINES, "1 to 10000", id="too many lines"),
        pytest.param(framed((None, b"")) * 10_001, FRAMES, "1 to 10000", id="too many frames"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused(body: bytes, headers: dict[str, str], words: str) -> None:
    assert words in message(parse.batch_of, request(body, headers))


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b'{"data":"a"}\n{"data":1}', LINES, "Expected `str`"),
        (b'{"data":"a"}\n{"data":"a","x":1}', LINES, "Object contains unknown field `x`"),
        (framed((None, b"a"), ({"seqno": 1}, b"")), FRAMES, "seqno and epoch need"),
        pytest.param(framed((None, b"a"), (b"[" * DEEP, b"")), FRAMES, "the body does not fit", id="deep item"),
    ],
)
def test_one_bad_item_is_told_by_itself(body: bytes, headers: dict[str, str], words: str) -> None:
    good, bad = items_of(body, headers)
    assert isinstance(good, InlineMessage)
    assert isinstance(bad, MtsError)
    assert words in bad.message


def test_a_body_of_line_ends_is_refused_before_it_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_line", None)
    assert "1 to 10000" in message(parse.batch_of, request(b"ab\n" * 1_000_000, LINES))


def test_a_batch_takes_no_idempotency_key() -> None:
    headers = {**LINES, "idempotency-key": "k"}
    assert "Idempotency-Key" in message(parse.batch_of, request(b'{"data":"a"}', headers))


# -- the query


@pytest.mark.parametrize(
    ("call", "query", "value"),
    [
        (parse.limit_of, {}, 100),
        (parse.limit_of, {"limit": "1000"}, 1000),
        (parse.partition_of, {}, None),
        (parse.partition_of, {"partition": "3"}, 3),
        (parse_delivery.start_of, {}, None),
        (parse_delivery.start_of, {"start": "last"}, "last"),
        (parse_delivery.start_of, {"start": "9007199254740993"}, 2**53 + 1),
        (parse.wait_of, {}, 0.0),
        (parse.wait_of, {"wait": "25"}, 25.0),
        (parse.wait_of, {"wait": "1.5e-1"}, 0.15),
    ],
)
def test_a_query_is_read(call: Any, query: dict[str, str], value: Any) -> None:
    assert call(query) == value


@pytest.mark.parametrize(
    ("call", "query", "name"),
    [
        (parse.limit_of, {"limit": "0"}, "limit"),
        (parse.limit_of, {"limit": "1001"}, "limit"),
        (parse.limit_of, {"limit": "9" * 30}, "limit"),
        (parse.limit_of, {"limit": ""}, "limit"),
        (parse.partition_of, {"partition": "-1"}, "partition"),
        (parse_delivery.start_of, {"start": "begin"}, "start"),
        (parse_delivery.start_of, {"start": str(2**63)}, "start"),
        *(
            (parse.wait_of, {"wait": text}, "wait")
            for text in ("-1", "25.1", "nan", "inf", "1e999", "1_0", " 1", "", "٣")
        ),
    ],
)
def test_a_wrong_query_is_refused_by_name(call: Any, query: dict[str, str], name: str) -> None:
    error = refusal(call, query)
    assert (error.code, error.details["field"]) == ("bad_request", name)
    assert name in error.message


def test_flags_and_choices() -> None:
    assert parse.flag_of({"inline": "true"}, "inline")
    assert not parse.flag_of({}, "inline")
    assert "true or false" in message(parse.flag_of, {"inline": "1"}, "inline")
    assert parse.choice_of({}, "view", ("messages", "extents")) == "messages"
    assert "messages, extents" in message(parse.choice_of, {"view": "x"}, "view", ("messages", "extents"))


def test_subjects_and_upload_ids_in_the_path_are_checked() -> None:
    assert parse.subject_of(request()) == "orders"
    assert "subject" in message(parse.subject_of, request(subject="a/b"))
    assert "upload id" in message(parse.upload_id_of, request(upload_id="x"))
