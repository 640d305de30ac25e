"""Requests about subjects, and what publishes say of groups and codecs."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from minitoolstream.api import parse, parse_subjects
from minitoolstream.api.app import Request
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.media_types import FRAMES, JSON_LINES, JSON_MESSAGE
from minitoolstream.domain.pack import AlikeMessages, InlineMessage


def request(body: bytes | Any = b"", headers: dict[str, str] | None = None) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "/", {"subject": "orders"}, {}, headers or {}, raw, "r")


def framed(*items: tuple[Any, bytes]) -> Request:
    fields = (field for meta, data in items for field in (json.dumps(meta).encode(), data))
    return request(b"".join(struct.pack(">I", len(field)) + field for field in fields), {"content-type": FRAMES})


def refusal(call: Any, *arguments: Any) -> MtsError:
    with pytest.raises(MtsError) as caught:
        call(*arguments)
    return caught.value


ROUTED = {"group": "g", "codec": "gzip"}


def test_every_way_to_publish_has_a_group_and_a_codec() -> None:
    (spec,), _ = parse.uploads_of(request({"size": 1, **ROUTED}))
    raw = parse.inline_of(request(b"x", {"x-mts-group": "g", "x-mts-codec": "gzip"}))
    message = parse.inline_of(request({"data": "x", **ROUTED}, {"content-type": JSON_MESSAGE}))
    lines = parse.batch_of(request({"data": "x", **ROUTED}, {"content-type": JSON_LINES}))
    frames = parse.batch_of(framed((ROUTED, b"x"), ({}, b"y")))
    assert not isinstance(lines, AlikeMessages)
    assert not isinstance(frames, AlikeMessages)
    for item in (spec, raw, message, lines[0], frames[0]):
        assert not isinstance(item, MtsError)
        assert (item.group, item.codec) == ("g", "gzip")
    assert isinstance(frames[1], InlineMessage)
    assert (frames[1].group, frames[1].codec) == (None, None)


@pytest.mark.parametrize("encoding", ["gzip", "deflate, gzip", "x" * 1000])
def test_a_body_that_http_packed_is_refused_and_told_of_codecs(encoding: str) -> None:
    for call, kind in (
        (parse.inline_of, "text/plain"),
        (parse.inline_of, JSON_MESSAGE),
        (parse.batch_of, JSON_LINES),
        (parse.batch_of, FRAMES),
    ):
        error = refusal(call, request(b"\x1f\x8b", {"content-type": kind, "content-encoding": encoding}))
        assert (error.code, error.details["field"]) == ("bad_request", "Content-Encoding")
        assert "X-Mts-Codec" in error.message
        assert len(error.message) < 300
    for plain in ("identity", "Identity", ""):
        assert parse.inline_of(request(b"x", {"content-encoding": plain})).data == b"x"


def test_a_raw_bodys_group_is_utf_8() -> None:
    headers = {"x-mts-group": "grüße".encode().decode("latin-1")}
    assert parse.inline_of(request(b"x", headers)).group == "grüße"
    assert "x-mts-group" in refusal(parse.inline_of, request(b"x", {"x-mts-group": "\xff"})).message


def test_raw_is_what_a_message_without_a_codec_has() -> None:
    assert parse.inline_of(request(b"x", {"x-mts-codec": "raw"})).codec is None


def test_alike_frames_share_a_codec_but_those_of_a_group_are_looked_at_one_by_one() -> None:
    alike = parse.batch_of(framed(({"codec": "zstd"}, b"x"), ({"codec": "zstd"}, b"y")))
    assert isinstance(alike, AlikeMessages)
    assert alike.like.codec == "zstd"
    grouped = parse.batch_of(framed(({"group": "g"}, b"x"), ({"group": "g"}, b"y")))
    assert not isinstance(grouped, AlikeMessages)


@pytest.mark.parametrize("codec", ["lzop", "", "GZIP", "gzip, zstd", "x" * 1000])
def test_a_codec_nobody_knows_is_refused_with_those_that_are_allowed(codec: str) -> None:
    for error in (
        refusal(parse.uploads_of, request({"size": 1, "codec": codec})),
        refusal(parse.inline_of, request(b"x", {"x-mts-codec": codec})),
    ):
        assert (error.code, error.details["allowed"]) == ("codec_not_allowed", ["raw", "gzip", "zstd"])
        assert "raw, gzip, zstd" in error.message
        assert len(error.message) < 150


def test_a_group_has_1_to_2048_characters() -> None:
    assert parse.uploads_of(request({"size": 1, "group": "é" * 2048}))[0][0].group == "é" * 2048
    for group in ("", "x" * 2049):
        error = refusal(parse.uploads_of, request({"size": 1, "group": group}))
        assert (error.code, error.details["field"]) == ("bad_request", "group")


def test_an_item_of_a_batch_that_is_wrong_keeps_its_error_alone() -> None:
    items = parse.batch_of(framed(({"codec": "lzop"}, b"x"), ({"group": ""}, b"y"), ({}, b"z")))
    assert not isinstance(items, AlikeMessages)
    assert [getattr(item, "code", None) for item in items] == ["codec_not_allowed", "bad_request", None]


def test_only_the_settings_that_are_given_are_changed() -> None:
    assert parse_subjects.changes_of(request({})) == {}
    given = {
        "partitions": 3,
        "codecs": ["raw"],
        "quota": {"messages": 5, "bytes": None},
        "autopartitioning": {"mode": "up", "stabilization": 60},
    }
    assert parse_subjects.changes_of(request(given)) == given
    assert parse_subjects.changes_of(request({"quota": None})) == {"quota": None}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"partitions": 0}, "$.partitions"),
        ({"partitions": 257}, "$.partitions"),
        ({"partitions": None}, "$.partitions"),
        ({"codecs": []}, "$.codecs"),
        ({"quota": {"rate": 0}}, "$.quota.rate"),
        ({"quota": {"bytes": 2**53 + 1}}, "$.quota.bytes"),
        ({"quota": {"weight": 1}}, "weight"),
        ({"autopartitioning": {"utilization": 101}}, "$.autopartitioning.utilization"),
        ({"autopartitioning": {"stabilization": 0}}, "$.autopartitioning.stabilization"),
        ({"ttl": "24h"}, "ttl"),
        ([], "array"),
    ],
)
def test_settings_beyond_their_limits_are_refused_by_name(body: Any, words: str) -> None:
    error = refusal(parse_subjects.changes_of, request(body))
    assert error.code == "bad_request"
    assert words in error.message


def test_a_prefix_is_the_beginning_of_a_name() -> None:
    assert parse_subjects.prefix_of({}) == ""
    assert parse_subjects.prefix_of({"prefix": ""}) == ""
    assert parse_subjects.prefix_of({"prefix": "orders."}) == "orders."
    for prefix in ("/", "a b", ".hidden", "x" * 241):
        assert refusal(parse_subjects.prefix_of, {"prefix": prefix}).code == "bad_request"
