"""The pack format: many small payloads in one object.

"MTSP" 0x01, u32 length of the head, the head (JSON: what recovery needs), then a frame a message:
u32 length, u32 CRC-32, payload.      (all big endian)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from zlib import crc32

import msgspec

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.lanes import LanesOf, arrange, hash_of, one_lane
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES

MAGIC = b"MTSP\x01"
FRAME = struct.Struct(">II")
"""What stands before a payload: its length and CRC-32."""
FRAME_PREFIX = FRAME.size
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
    group: str | None = None
    codec: str | None = None
    key: str | None = None
    digest: str | None = None
    transaction_id: str | None = None


class AlikeMessages(msgspec.Struct, gc=False):
    """Many messages that differ in their payloads alone: none names a producer, a key or a group."""

    like: InlineMessage
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive frames of one subject, codec and transaction; `indexes` are the messages' places in the caller's
    list, a range when all are there as they came."""

    subject: str
    headers: Mapping[str, str]
    content_type: str
    sizes: list[int]
    own: list[list[Any]]
    marks: list[dict[str, Any]]
    indexes: Sequence[int]
    byte_from: int
    codec: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    body: list[bytes]
    groups: list[Group]


def build_pack(messages: Sequence[InlineMessage], lanes_of: LanesOf = one_lane) -> Pack:
    """Frames grouped by subject and codec, lane by lane, within each in the order in which the messages came; those of
    transactions behind the others, whose lanes are chosen when they are committed."""
    described = [_describe(indexes, messages) for indexes in _runs(messages, lanes_of)]
    return _join(described, [[messages[index].data for index in group["indexes"]] for group in described])


def _runs(messages: Sequence[InlineMessage], lanes_of: LanesOf) -> list[Sequence[int]]:
    staged = [index for index, message in enumerate(messages) if message.transaction_id is not None]
    if not staged:
        return arrange(messages, lanes_of)
    others = [index for index, message in enumerate(messages) if message.transaction_id is None]
    runs: list[Sequence[int]] = []
    if others:
        arranged = arrange([messages[index] for index in others], lanes_of)
        runs += [[others[place] for place in run] for run in arranged]

    def kind(index: int) -> tuple[str | None, ...]:
        return messages[index].transaction_id, messages[index].subject, messages[index].codec

    return runs + [list(run) for _, run in groupby(staged, kind)]


def build_alike_pack(alike: AlikeMessages) -> Pack:
    """The same pack that `build_pack` makes of these messages, without looking at each."""
    like, payloads = alike.like, alike.payloads
    group = {
        "subject": like.subject,
        "headers": like.headers,
        "content_type": like.content_type,
        "codec": like.codec,
        "sizes": list(map(len, payloads)),
        "own": [],
        "marks": [],
        "indexes": range(len(payloads)),
        "transaction_id": like.transaction_id,
    }
    return _join([group], [payloads])


_IN_HEAD = ("subject", "headers", "content_type", "codec", "sizes", "own", "marks", "transaction_id")


def write_head(described: Sequence[Mapping[str, Any]]) -> bytes:
    """The beginning of a pack, up to its first frame."""
    head = msgspec.json.encode([{key: group[key] for key in _IN_HEAD} for group in described])
    return MAGIC + _LENGTH.pack(len(head)) + head


HEAD_PREFIX = len(MAGIC) + _LENGTH.size


def head_length(beginning: bytes) -> int:
    """Bytes before the first frame, from the first HEAD_PREFIX of them; 0 when this is no pack of ours."""
    if len(beginning) < HEAD_PREFIX or not beginning.startswith(MAGIC):
        return 0
    return HEAD_PREFIX + int(_LENGTH.unpack_from(beginning, len(MAGIC))[0])


def read_head(beginning: bytes) -> list[dict[str, Any]] | None:
    """The groups that a head describes, each with the place of its first frame; None when it is not one."""
    if head_length(beginning) != len(beginning) or not beginning:
        return None
    try:
        groups: list[dict[str, Any]] = msgspec.json.decode(beginning[HEAD_PREFIX:])
        position = len(beginning)
        for group in groups:
            group["byte_from"] = position
            position += sum(group["sizes"]) + FRAME_PREFIX * len(group["sizes"])
    except (msgspec.DecodeError, TypeError, KeyError):
        return None
    return groups


def _join(described: list[dict[str, Any]], payloads: list[list[bytes]]) -> Pack:
    head = write_head(described)
    if sum(map(len, payloads)) > MAX_MESSAGES_PER_PACK or len(head) - HEAD_PREFIX > MAX_PACK_METADATA_BYTES:
        raise MtsError(
            "too_large",
            f"a batch holds at most {MAX_MESSAGES_PER_PACK} messages and {MAX_PACK_METADATA_BYTES} bytes of metadata",
        )
    body = [head]
    position = len(head)
    groups = []
    for group, own in zip(described, payloads, strict=True):
        groups.append(Group(**group, byte_from=position))
        sizes = group["sizes"]
        frames = [b""] * (2 * len(own))
        frames[::2] = map(FRAME.pack, sizes, map(crc32, own))
        frames[1::2] = own
        body += frames
        position += sum(sizes) + FRAME_PREFIX * len(sizes)
    return Pack(body, groups)


def _describe(indexes: Sequence[int], messages: Sequence[InlineMessage]) -> dict[str, Any]:
    first = messages[indexes[0]]
    own: list[list[Any]] = []
    marks: list[dict[str, Any]] = []
    for place, index in enumerate(indexes):
        message = messages[index]
        same_headers = message.headers is first.headers or message.headers == first.headers
        same_type = message.content_type == first.content_type
        if not (same_headers and same_type):
            own.append([place, None if same_headers else message.headers, None if same_type else message.content_type])
        if message.producer_id is not None or message.key is not None or message.group is not None:
            marks.append(_mark(place, message))
    sizes = [len(messages[index].data) for index in indexes]
    return {
        "subject": first.subject,
        "headers": first.headers,
        "content_type": first.content_type,
        "codec": first.codec,
        "sizes": sizes,
        "own": own,
        "marks": marks,
        "indexes": indexes,
        "transaction_id": first.transaction_id,
    }


def _mark(place: int, message: InlineMessage) -> dict[str, Any]:
    """What decides whether and where a message is stored, other than its subject."""
    mark: dict[str, Any] = {"index": place}
    if message.producer_id is not None:
        mark.update(producer_id=message.producer_id, seqno=message.seqno, epoch=message.epoch)
    elif message.key is not None:
        mark.update(key=message.key, digest=message.digest)
    if message.group is not None:
        mark.update(group=message.group, hash=hash_of(message.group))
    return mark


def read_frames(frames: bytes) -> Iterator[bytes]:
    """The payloads of consecutive frames; a damaged one is an error, never a wrong payload."""
    position = 0
    while position < len(frames):
        if position + FRAME_PREFIX > len(frames):
            raise MtsError("checksum_mismatch", "a pack ends in the middle of a frame")
        length, checksum = FRAME.unpack_from(frames, position)
        payload = frames[position + FRAME_PREFIX : position + FRAME_PREFIX + length]
        if len(payload) != length or crc32(payload) != checksum:
            raise MtsError("checksum_mismatch", "a frame of a pack is damaged")
        yield payload
        position += FRAME_PREFIX + length


def payloads_of(frames: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The payloads of consecutive frames, which must have the sizes that are announced."""
    payloads = list(read_frames(frames))
    if [len(payload) for payload in payloads] != list(sizes):
        raise MtsError("checksum_mismatch", "the frames of the pack are not those that were announced")
    return payloads


class FrameCheck:
    """Checks consecutive frames that come block by block, in little memory however large they are."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._prefix = b""
        self._left = 0
        self._expected = 0
        self._crc = 0
        self._inside = False

    def feed(self, block: bytes) -> None:
        view = memoryview(block)
        while view or (self._inside and not self._left):
            if not self._inside:
                taken = FRAME_PREFIX - len(self._prefix)
                self._prefix += bytes(view[:taken])
                view = view[taken:]
                if len(self._prefix) < FRAME_PREFIX:
                    return
                self._left, self._expected = FRAME.unpack(self._prefix)
                self.sizes.append(self._left)
                self._prefix, self._crc, self._inside = b"", 0, True
            part = view[: self._left]
            self._crc = crc32(part, self._crc)
            self._left -= len(part)
            view = view[len(part) :]
            if self._left:
                return
            if self._crc != self._expected:
                raise MtsError("checksum_mismatch", "a frame of a pack is damaged")
            self._inside = False

    def finish(self) -> None:
        if self._inside or self._prefix:
            raise MtsError("checksum_mismatch", "a pack ends in the middle of a frame")


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


def read_alike_batch(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """The metadata JSON that all items of such a body share, to the byte, and their payloads. None when they differ
    or something is wrong: `read_batch` says what."""
    payloads: list[bytes] = []
    append, length_at, repeated = payloads.append, _LENGTH.unpack_from, body.startswith
    position, end = 0, len(body)
    try:
        meta = body[: 4 + length_at(body)[0]]
        skip = len(meta) + 4
        for _ in range(MAX_MESSAGES_PER_PACK):
            if not repeated(meta, position):
                return None
            start = position + skip
            position = start + length_at(body, start - 4)[0]
            append(body[start:position])
            if position >= end:
                return (meta[4:], payloads) if position == end else None
    except struct.error:
        pass
    return None


def _ends_early() -> MtsError:
    return bad_request("the batch ends in the middle of an item; nothing was stored")
