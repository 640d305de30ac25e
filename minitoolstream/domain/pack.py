"""The pack format: many small payloads in one object.

    "MTSP" 0x01, u32 length of the head, the head (JSON: what recovery needs), then a frame a message:
    u32 length, u32 CRC-32, payload.      (all big endian)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES

MAGIC = b"MTSP\x01"
FRAME_PREFIX = 8
_FRAME = struct.Struct(">II")
_LENGTH = struct.Struct(">I")


class InlineMessage(msgspec.Struct, gc=False):
    """A small message whose payload is at hand."""

    subject: str
    data: bytes
    content_type: str
    headers: dict[str, str] = {}
    producer_id: str | None = None
    seqno: int | None = None
    epoch: int | None = None
    key: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive frames of one subject; `indexes` are the messages' places in the caller's list."""

    subject: str
    headers: Mapping[str, str]
    content_type: str
    sizes: list[int]
    own: list[list[Any]]
    marks: list[dict[str, Any]]
    indexes: list[int]
    byte_from: int


@dataclass(frozen=True, slots=True)
class Pack:
    body: list[bytes]
    groups: list[Group]


def build_pack(messages: Sequence[InlineMessage]) -> Pack:
    """Frames grouped by subject, in the order in which the messages came."""
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    described = [_describe(subject, indexes, messages) for subject, indexes in by_subject.items()]
    head = msgspec.json.encode([{key: group[key] for key in _IN_HEAD} for group in described])
    if len(messages) > MAX_MESSAGES_PER_PACK or len(head) > MAX_PACK_METADATA_BYTES:
        raise MtsError(
            "too_large",
            f"a batch holds at most {MAX_MESSAGES_PER_PACK} messages and {MAX_PACK_METADATA_BYTES} bytes of metadata",
        )
    body = [MAGIC + _LENGTH.pack(len(head)) + head]
    position = len(body[0])
    groups = []
    for group in described:
        groups.append(Group(**group, byte_from=position))
        for index in group["indexes"]:
            data = messages[index].data
            body.append(_FRAME.pack(len(data), crc32(data)))
            body.append(data)
            position += FRAME_PREFIX + len(data)
    return Pack(body, groups)


_IN_HEAD = ("subject", "headers", "content_type", "sizes", "own", "marks")


def _describe(subject: str, indexes: list[int], messages: Sequence[InlineMessage]) -> dict[str, Any]:
    first = messages[indexes[0]]
    own: list[list[Any]] = []
    marks: list[dict[str, Any]] = []
    for place, index in enumerate(indexes):
        message = messages[index]
        same_headers = message.headers is first.headers or message.headers == first.headers
        same_type = message.content_type == first.content_type
        if not (same_headers and same_type):
            own.append(
                [place, None if same_headers else message.headers, None if same_type else message.content_type]
            )
        if message.producer_id is not None:
            marks.append(
                {"index": place, "producer_id": message.producer_id, "seqno": message.seqno, "epoch": message.epoch}
            )
        elif message.key is not None:
            marks.append({"index": place, "key": message.key, "digest": message.digest})
    sizes = [len(messages[index].data) for index in indexes]
    return {
        "subject": subject,
        "headers": first.headers,
        "content_type": first.content_type,
        "sizes": sizes,
        "own": own,
        "marks": marks,
        "indexes": indexes,
    }


def read_frames(frames: bytes) -> Iterator[bytes]:
    """The payloads of consecutive frames; a damaged one is an error, never a wrong payload."""
    position = 0
    while position < len(frames):
        if position + FRAME_PREFIX > len(frames):
            raise MtsError("checksum_mismatch", "a pack ends in the middle of a frame")
        length, checksum = _FRAME.unpack_from(frames, position)
        payload = frames[position + FRAME_PREFIX : position + FRAME_PREFIX + length]
        if len(payload) != length or crc32(payload) != checksum:
            raise MtsError("checksum_mismatch", "a frame of a pack is damaged")
        yield payload
        position += FRAME_PREFIX + length


def read_batch(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(metadata JSON, payload) of each item of an `application/vnd.mts.frames` body."""
    length_at = _LENGTH.unpack_from
    position, end = 0, len(body)
    try:
        while position < end:
            meta_end = position + 4 + length_at(body, position)[0]
            payload_end = meta_end + 4 + length_at(body, meta_end)[0]
            if payload_end > end:
                raise _ends_early()
            yield body[position + 4 : meta_end], body[meta_end + 4 : payload_end]
            position = payload_end
    except struct.error:
        raise _ends_early() from None


def _ends_early() -> MtsError:
    return bad_request("the batch ends in the middle of an item; nothing was stored")
