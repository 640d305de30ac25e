"""Content ids: what a payload is called by its bytes. CIDv1 and v0, of which the digest is sha2-256."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from functools import cached_property

from minitoolstream.domain.errors import bad_request

RAW = 0x55
CODECS = {RAW: "raw", 0x70: "dag-pb", 0x71: "dag-cbor"}
_SHA2_256 = 0x12
_DIGEST_BYTES = 32
_LONGEST = 128  # characters; those of ours have 59
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUE = {letter: value for value, letter in enumerate(_BASE58)}


@dataclass(frozen=True)
class Cid:
    """A content id. Two that name the same bytes by different codecs are two ids."""

    codec: int
    digest: bytes

    @cached_property
    def binary(self) -> bytes:
        return bytes((1, self.codec, _SHA2_256, _DIGEST_BYTES)) + self.digest

    @cached_property
    def text(self) -> str:
        return "b" + base64.b32encode(self.binary).decode().rstrip("=").lower()

    @property
    def sha256(self) -> str:
        return self.digest.hex()

    @property
    def prefix(self) -> int:
        """`mh_prefix`: the digest's first two bytes, as a signed 16-bit number."""
        return signed_prefix(int.from_bytes(self.digest[:2], "big"))

    @property
    def key(self) -> tuple[int, bytes]:
        """Of its rows by content."""
        return self.prefix, self.binary

    @property
    def columns(self) -> dict[str, int | bytes]:
        """The same, by the names of the columns."""
        return {"mh_prefix": self.prefix, "cid_bin": self.binary}

    def __str__(self) -> str:
        return self.text


def signed_prefix(number: int) -> int:
    """CQL's `smallint` is signed: 0..65535 is stored as its two's complement."""
    return number - 0x10000 if number >= 0x8000 else number


def signed_byte(number: int) -> int:
    """The same for `tinyint`."""
    return number - 0x100 if number >= 0x80 else number


def cid_of(payload: bytes) -> Cid:
    return Cid(RAW, hashlib.sha256(payload).digest())


def cid_of_sha256(digest: str) -> Cid:
    """Of a payload that somebody has hashed already; hex."""
    return Cid(RAW, bytes.fromhex(digest))


def read_cid(text: str, field: str = "cid") -> Cid:
    """Base32 and base58btc of v1, and v0 (`Qm...`); MtsError that says what is wrong with it."""
    if not 0 < len(text) <= _LONGEST:
        raise bad_request(f"{field} must be a content id such as bafkrei...", field=field)
    try:
        if len(text) == 46 and text.startswith("Qm"):
            return _of_multihash(0x70, _base58(text), field)
        raw = _decoded(text)
    except (ValueError, binascii.Error):
        raise bad_request(
            f"{field} {text[:80]!r} is not a content id: write one like bafkrei...", field=field
        ) from None
    return read_binary(raw, field)


def read_binary(raw: bytes, field: str = "cid") -> Cid:
    version, rest = _varint(raw, field)
    if version != 1:
        raise bad_request(f"{field}: version {version} of content ids is unknown; 0 and 1 are known", field=field)
    codec, rest = _varint(rest, field)
    if codec not in CODECS:
        known = ", ".join(CODECS.values())
        raise bad_request(f"{field}: codec 0x{codec:x} is unknown; known are {known}", field=field)
    return _of_multihash(codec, rest, field)


def _of_multihash(codec: int, raw: bytes, field: str) -> Cid:
    kind, rest = _varint(raw, field)
    if kind != _SHA2_256:
        raise bad_request(f"{field}: hash 0x{kind:x} is not supported; only sha2-256 is", field=field)
    length, digest = _varint(rest, field)
    if length != _DIGEST_BYTES or len(digest) != _DIGEST_BYTES:
        raise bad_request(f"{field}: its digest has not the 32 bytes of sha2-256", field=field)
    return Cid(codec, digest)


def _decoded(text: str) -> bytes:
    base, body = text[0], text[1:]
    if (base == "b" and body == body.lower()) or (base == "B" and body == body.upper()):
        padded = body.upper() + "=" * (-len(body) % 8)
        raw = base64.b32decode(padded)
        if base64.b32encode(raw).decode().rstrip("=") != body.upper():
            raise ValueError("bits at its end that mean nothing")
        return raw
    if base == "z":
        return _base58(body)
    raise ValueError("an unknown base")


def _base58(text: str) -> bytes:
    number = 0
    for letter in text:
        if letter not in _VALUE:
            raise ValueError(letter)
        number = number * 58 + _VALUE[letter]
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _varint(raw: bytes, field: str) -> tuple[int, bytes]:
    number = 0
    for at, byte in enumerate(raw[:9]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            if at and byte == 0:
                break  # a longer form of a shorter number
            return number, raw[at + 1 :]
    raise bad_request(f"{field} is not a content id: it ends too early, or a number in it is malformed", field=field)
