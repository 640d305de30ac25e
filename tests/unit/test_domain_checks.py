"""What a request may contain: every refusal names its field."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.checks import (
    check_content_type,
    check_headers,
    check_idempotency_key,
    check_number,
    check_pack_sizes,
    check_producer,
    check_sha256,
    check_size,
    check_upload,
)
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_HEADERS, MAX_HEADERS_BYTES, MAX_PAYLOAD_BYTES, MAX_SEQUENCE
from minitoolstream.domain.subject import check_subject, check_upload_id, new_id, pack_name, upload_id_of
from minitoolstream.domain.upload import UploadSpec

NAME_LETTERS = string.ascii_letters + string.digits + "._-"


def refused(check: Any, *arguments: Any) -> MtsError:
    with pytest.raises(MtsError) as caught:
        check(*arguments)
    assert caught.value.code in {"bad_request", "too_large"}
    assert "field" in caught.value.details
    return caught.value


@pytest.mark.parametrize("number", [MAX_SEQUENCE + 1, str(MAX_SEQUENCE + 1), "9" * 26, "9" * 5000])
def test_a_number_that_is_too_large_is_called_so(number: int | str) -> None:
    assert "is too large" in refused(check_number, number, "start").message


@given(st.text(NAME_LETTERS, min_size=1, max_size=240))
def test_a_subject_is_made_of_safe_letters(name: str) -> None:
    if name[0] in "._-":
        refused(check_subject, name)
    else:
        assert check_subject(name) == name


@given(st.text(max_size=300))
def test_no_other_subject_passes(name: str) -> None:
    fits = name and len(name.removesuffix(".dlq")) <= 240 and name[0] not in "._-" and set(name) <= set(NAME_LETTERS)
    if fits:
        assert check_subject(name) == name
    else:
        assert refused(check_subject, name).details["field"] == "subject"


@pytest.mark.parametrize("name", ["", "a\n", "a/b", "..", "a" * 241, "a" * 241 + ".dlq", "ä", "a b", "a\x00", "%41"])
def test_these_are_no_subjects(name: str) -> None:
    refused(check_subject, name)


@pytest.mark.parametrize("length", [1, 237, 240])
def test_the_dead_letter_subject_of_every_subject_can_be_named(length: int) -> None:
    letters = check_subject("a" * length) + ".dlq"
    assert check_subject(letters) == letters


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=80))
def test_headers_pass_within_their_bounds_and_come_out_as_they_are(headers: dict[str, str]) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    if len(headers) > MAX_HEADERS or size > MAX_HEADERS_BYTES or "" in headers:
        assert refused(check_headers, headers).details["field"] == "headers"
    else:
        assert check_headers(headers) == headers


def test_headers_are_bounded_to_the_byte() -> None:
    assert check_headers({"a": "x" * (MAX_HEADERS_BYTES - 1)})
    refused(check_headers, {"a": "x" * MAX_HEADERS_BYTES})
    refused(check_headers, {"a": "é" * (MAX_HEADERS_BYTES // 2)})
    assert check_headers({str(number): "" for number in range(MAX_HEADERS)})
    refused(check_headers, {str(number): "" for number in range(MAX_HEADERS + 1)})


@pytest.mark.parametrize("headers", [{"\ud800": "x"}, {"x": "\udfff"}])
def test_half_a_surrogate_pair_is_no_header(headers: dict[str, str]) -> None:
    assert "UTF-8" in refused(check_headers, headers).message


@pytest.mark.parametrize("value", [0, "0", "007", MAX_SEQUENCE, str(MAX_SEQUENCE)])
def test_numbers_come_as_numbers_or_digits(value: int | str) -> None:
    assert check_number(value, "seqno") == int(value)


@pytest.mark.parametrize(
    "value", [-1, "-1", "", " 1", "1 ", "+1", "1.0", "0x1", "١", "1_0", "1\n", True, None, 2**63, str(2**63), "9" * 40]
)
def test_what_is_no_number_is_refused_by_its_field(value: Any) -> None:
    error = refused(check_number, value, "seqno")
    assert error.details["field"] == "seqno"
    assert "seqno" in error.message


def test_sizes_have_bounds() -> None:
    assert check_size(0) == 0
    assert check_size(MAX_PAYLOAD_BYTES) == MAX_PAYLOAD_BYTES
    assert refused(check_size, -1).code == "bad_request"
    assert refused(check_size, MAX_PAYLOAD_BYTES + 1).code == "too_large"


@pytest.mark.parametrize("value", ["text/plain", "a/b", "text/plain; charset=utf-8", 'multipart/x; a="b c"', "a/b;"])
def test_media_types_pass(value: str) -> None:
    assert check_content_type(value) == value


@pytest.mark.parametrize(
    "value", ["", "text", "/", "a/", "text/plain\n", "text/plain; é", "a b/c", "a/b\x00", "a/" + "b" * 300, "a/b c"]
)
def test_what_is_no_media_type_is_refused(value: str) -> None:
    assert refused(check_content_type, value).details["field"] == "content_type"


@pytest.mark.parametrize("value", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n"])
def test_a_checksum_is_64_lower_case_hex_digits(value: str) -> None:
    assert check_sha256("a" * 64) == "a" * 64
    assert check_sha256(None) is None
    assert refused(check_sha256, value).details["field"] == "sha256"


@pytest.mark.parametrize(
    ("producer_id", "seqno", "epoch", "field"),
    [
        (None, 1, None, "producer_id"),
        (None, None, 1, "producer_id"),
        ("", 1, None, "producer_id"),
        ("x" * 2049, 1, None, "producer_id"),
        ("\ud800", 1, None, "producer_id"),
        ("p", None, None, "seqno"),
        ("p", "x", None, "seqno"),
        ("p", -1, None, "seqno"),
        ("p", 1, -1, "epoch"),
    ],
)
def test_a_producer_is_named_with_both_or_neither(producer_id: Any, seqno: Any, epoch: Any, field: str) -> None:
    assert refused(check_producer, producer_id, seqno, epoch).details["field"] == field


def test_a_producer_passes() -> None:
    assert check_producer(None, None, None) == (None, None, None)
    assert check_producer("é" * 2048, "7", None) == ("é" * 2048, 7, None)
    assert check_producer("p", 0, 3) == ("p", 0, 3)


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256, "a\n", "\x7f"])
def test_an_idempotency_key_is_visible_ascii(key: str) -> None:
    assert check_idempotency_key("x" * 255) == "x" * 255
    refused(check_idempotency_key, key)


def test_the_frames_of_a_pack_must_fit_into_it() -> None:
    assert check_pack_sizes(10, None) is None
    assert check_pack_sizes(3 + 16, [1, 2]) == (1, 2)
    for size, sizes in ((18, [1, 2]), (100, []), (100, [-1]), (10**9, [0] * 10_001)):
        assert refused(check_pack_sizes, size, sizes).details["field"] == "sizes"


def test_a_whole_announcement_is_checked() -> None:
    spec = UploadSpec(20, "a/b", producer_id="p", headers={"a": "b"})
    assert check_upload(spec, [4], "5") == UploadSpec(
        20, "a/b", headers={"a": "b"}, producer_id="p", seqno=5, sizes=(4,)
    )
    refused(check_upload, UploadSpec(-1, "a/b"), None, None)


@given(st.integers(0, 2**48 - 1))
def test_ids_are_ordered_by_time_and_are_upload_ids(unix_ms: int) -> None:
    made = new_id(unix_ms)
    assert check_upload_id(made) == made
    assert int(made[:8] + made[9:13], 16) == unix_ms
    assert upload_id_of(f"m/orders/1/{made}") == made
    assert upload_id_of(pack_name(made)) is None


@pytest.mark.parametrize(
    "upload_id", ["", "x", "01890a5d-ac96-474b-bcce-b302099a8057", "01890A5D-ac96-774b-bcce-b302099a8057", "../x"]
)
def test_these_are_no_upload_ids(upload_id: str) -> None:
    assert refused(check_upload_id, upload_id).details["field"] == "id"


ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize(
    "name",
    ["", "m", f"m/orders/{ID}", f"x/orders/1/{ID}", f"m/.orders/1/{ID}", f"m/o/x/{ID}", f"m/o/1/{ID}/", "m/o/1/x"],
)
def test_an_object_outside_the_pattern_is_foreign(name: str) -> None:
    assert upload_id_of(name) is None
