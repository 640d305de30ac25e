"""An export: a head, segments of messages, and an end that says it is complete. docs/export.md describes it.

export.json              which subject, up to where
segment-000001.jsonl     a line a message: its metadata, and where its payload is
segment-000001.bin       payloads of the segment, one behind the other, as they are stored
payload-<sequence>.bin   a payload too large for a segment
complete.json            how much there is; written last
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

FORMAT = "mts-export"
VERSION = 1
HEAD, END = "export.json", "complete.json"
_SEGMENT = re.compile(r"segment-(\d{6,})\.jsonl\Z")


class Head(msgspec.Struct):
    """`up_to`: the subject's last message when the export began."""

    format: str
    version: int
    id: str
    subject: str
    up_to: int
    created_at: int
    partitions: int
    settings: dict[str, Any] = {}


class Line(msgspec.Struct, omit_defaults=True):
    """A message. Its payload, of `size` bytes with this `sha256`, begins at byte `at` of the segment's `.bin`, or is
    the whole of `file`; with `payload_missing`, there is none."""

    sequence: int
    partition: int
    offset: int
    create_at: int
    headers: dict[str, str]
    content_type: str
    size: int
    sha256: str = ""
    codec: str | None = None
    at: int | None = None
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
