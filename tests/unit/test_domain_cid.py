"""Content ids."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.cid import RAW, Cid, cid_of, cid_of_sha256, read_binary, read_cid, signed_prefix
from minitoolstream.domain.errors import MtsError

T = TypeVar("T")
# Of the bytes `hello world`, as `ipfs add --cid-version 1 --raw-leaves` says.
HELLO = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
V0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"


def either(read: Callable[[T], Cid], value: T) -> Cid | MtsError:
    try:
        return read(value)
    except MtsError as error:
        return error


def text_of(raw: bytes) -> str:
    return "b" + base64.b32encode(raw).decode().rstrip("=").lower()


def test_a_payload_has_the_id_that_ipfs_gives_it() -> None:
    assert cid_of(b"hello world").text == HELLO
    assert cid_of_sha256(hashlib.sha256(b"hello world").hexdigest()) == read_cid(HELLO)


def test_the_older_form_is_the_same_content_under_its_codec() -> None:
    found = read_cid(V0)
    assert found.codec == 0x70
    assert found.text.startswith("bafybei")
    assert read_cid(found.text) == found


@given(st.binary(max_size=64), st.sampled_from([RAW, 0x70, 0x71]))
def test_every_form_of_an_id_is_read_back(payload: bytes, codec: int) -> None:
    cid = Cid(codec, hashlib.sha256(payload).digest())
    assert read_cid(cid.text) == cid
    assert read_cid(cid.text.upper()) == cid
    assert read_binary(cid.binary) == cid


@given(st.integers(0, 0xFFFF))
def test_prefixes_fit_a_signed_number_and_keep_their_value(number: int) -> None:
    assert -0x8000 <= signed_prefix(number) < 0x8000
    assert signed_prefix(number) & 0xFFFF == number


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", "must be a content id"),
        ("b" * 200, "must be a content id"),
        ("hello", "not a content id"),
        ("bafkrei!", "not a content id"),
        (HELLO[:-1], "not a content id"),
        (HELLO + "aaaaaaaa", "32 bytes"),
        ("Qm" + "0" * 44, "not a content id"),
        ("bag" + HELLO[3:], "codec"),
        (text_of(b"\x01\x55\x13\x20" + bytes(32)), "hash 0x13"),
        (text_of(b"\x01\x55\x12\x1f" + bytes(31)), "32 bytes"),
        (text_of(b"\x02\x55\x12\x20" + bytes(32)), "version 2"),
        ("z", "ends too early"),
    ],
)
def test_what_is_no_id_is_refused_by_name(text: str, about: str) -> None:
    with pytest.raises(MtsError) as caught:
        read_cid(text)
    assert caught.value.code == "bad_request"
    assert about in caught.value.message
    assert caught.value.details["field"] == "cid"


@given(st.text(max_size=80))
def test_any_text_is_an_id_or_a_bad_request(text: str) -> None:
    found = either(read_cid, text)
    assert isinstance(found, Cid) or found.code == "bad_request"


@given(st.binary(max_size=60))
def test_any_bytes_are_an_id_or_a_bad_request(raw: bytes) -> None:
    found = either(read_binary, raw)
    assert found.binary == raw if isinstance(found, Cid) else found.code == "bad_request"
