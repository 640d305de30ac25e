"""An export: a head, segments of messages, and an end that says it is complete. docs/export.md describes it.

export.json              which subject, up to where
segment-000001.jsonl     a line a message: its metadata, and where its payload is
segment-000001.bin       payloads of the segment, one behind the other, as they are stored
payload-<sequence>.bin   a payload too large for a segment
complete.json            how much there is; written last
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

import msgspec

from minitoolstream.domain.errors import MtsError

FORMAT = "mts-export"
VERSION = 1
HEAD, END = "export.json", "complete.json"
_SEGMENT = re.compile(r"segment-(\d{6,})\.jsonl\Z")
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
T = TypeVar("T")


class Head(msgspec.Struct):
    """`up_to`: the subject's last message when the export began; `incarnation`: which of that name it was."""

    format: str
    version: int
    id: str
    subject: str
    up_to: int
    created_at: int
    partitions: int
    settings: dict[str, Any] = {}
    incarnation: int | None = None


class Line(msgspec.Struct, omit_defaults=True):
    """A message. Its payload, of `size` bytes with this `sha256`, begins at byte `at` of the segment's `.bin`, or is
    the whole of `file`; with `payload_missing`, there is none."""

    sequence: int
    partition: int
    offset: int
    create_at: int
    headers: dict[str, str]
    content_type: str
    size: _Place
    sha256: str = ""
    codec: str | None = None
    at: _Place | None = None
    file: str | None = None
    payload_missing: bool = False
    unverified: bool = False


class End(msgspec.Struct):
    """What the export holds; `missing` messages have no payload."""

    messages: int
    bytes: int
    missing: int
    segments: int


def segment_name(number: int, kind: str) -> str:
    return f"segment-{number:06}.{kind}"


def payload_name(sequence: int) -> str:
    return f"payload-{sequence:020}.bin"


def segments_in(names: list[str]) -> int:
    """How many segments are whole: those whose lines are there, from the first on."""
    found = {int(match[1]) for name in names if (match := _SEGMENT.match(name))}
    number = 0
    while number + 1 in found:
        number += 1
    return number


def read_part(name: str, content: bytes, part: type[T]) -> T:
    """What a file of an export says; MtsError `checksum_mismatch` for one that is damaged."""
    try:
        return msgspec.json.decode(content, type=part)
    except msgspec.MsgspecError as error:
        raise _damaged(name, str(error)) from None


def read_lines(name: str, content: bytes) -> list[Line]:
    """Files that lines name are those of their own messages: an export leads nowhere else."""
    lines = [read_part(name, text, Line) for text in content.splitlines()]
    if not lines:
        raise _damaged(name, "it is empty")
    for line in lines:
        if line.file not in {None, payload_name(line.sequence)}:
            raise _damaged(name, f"message {line.sequence} has no file {line.file}")
    return lines


def _damaged(name: str, why: str) -> MtsError:
    return MtsError("checksum_mismatch", f"{name} of the export is damaged: {why}")
