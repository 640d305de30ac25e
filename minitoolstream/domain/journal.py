"""The journal's segments: rows of the metadata store as objects in the bucket (rule 29).

    "MTSJ" 0x01, SHA-256 of what follows, then deflated msgpack of a Segment.

Segments are numbered in the order in which they were read; of rows with the same key the later one counts. A *round* is
one consistent state: all its segments but the last have `complete` false. One with `checkpoint` is part of a round that
holds every row beside the messages, so what was known of those before it no longer counts.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.keys import JOURNAL_PREFIX

MAGIC = b"MTSJ\x01"
SEGMENT_TYPE = "application/vnd.mts.journal"
_DIGEST = 32
_HEADERS, _OWN = 1, 11  # of a message row
_NAME = re.compile(rf"{JOURNAL_PREFIX}(\d{{20}})-(\d{{20}})-(\d{{20}})(c?)(e?)\Z")


class Segment(msgspec.Struct, array_like=True):
    """`rows` are messages with sequences behind `after`, up to `upto`. `side` are [space, row, key, head]: a row, or
    the key of one that is gone; `head` is where a partition begins. `removed` are keys of messages that are gone."""

    number: int
    after: int
    upto: int
    at: int
    checkpoint: bool
    complete: bool
    rows: list[list[Any]] = []
    side: list[list[Any]] = []
    removed: list[int] = []


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What a segment's name tells without reading it; sorts in the order of replay."""

    number: int
    after: int
    upto: int
    checkpoint: bool
    complete: bool
    name: str = ""


def segment_name(segment: Segment) -> str:
    marks = ("c" if segment.checkpoint else "") + ("e" if segment.complete else "")
    return f"{JOURNAL_PREFIX}{segment.number:020}-{segment.after:020}-{segment.upto:020}{marks}"


def parse_name(name: str) -> SegmentName | None:
    """None for an object that is not ours."""
    found = _NAME.match(name)
    if not found:
        return None
    return SegmentName(int(found[1]), int(found[2]), int(found[3]), bool(found[4]), bool(found[5]), name)


def segments_of(names: Iterable[str]) -> list[SegmentName]:
    return sorted(found for name in names if (found := parse_name(name)))


def newest_checkpoint(segments: Iterable[SegmentName]) -> SegmentName | None:
    """The first segment of the newest round that holds every side row and was written to its end."""
    first: SegmentName | None = None
    found: SegmentName | None = None
    for segment in segments:
        if not segment.checkpoint:
            first = None
            continue
        first = first or segment
        if segment.complete:
            found, first = first, None
    return found


def merged(parts: Sequence[Segment]) -> Segment:
    """One in the place of several that follow each other, all before a whole checkpoint: only their messages count.
    Those that are gone keep nothing of what their headers said."""
    last = parts[-1]
    rows = {row[0]: row for part in parts for row in part.rows}
    removed = [sequence for part in parts for sequence in part.removed]
    for sequence in removed:
        if sequence in rows:
            rows[sequence] = _without_headers(rows[sequence])
    after = min(part.after for part in parts)
    upto = max(part.upto for part in parts)
    return Segment(last.number, after, upto, last.at, False, True, list(rows.values()), [], removed)


def holds(one: Segment, other: Segment) -> bool:
    """Does one tell all that the other tells of messages?"""
    rows = {row[0]: row for row in one.rows}
    return all(rows.get(row[0]) == row for row in other.rows) and set(other.removed) <= set(one.removed)


def _without_headers(row: Sequence[Any]) -> list[Any]:
    bare = list(row)
    bare[_HEADERS] = {}
    if len(bare) > _OWN:
        bare[_OWN] = None
    return bare


def encode(segment: Segment) -> bytes:
    body = zlib.compress(msgspec.msgpack.encode(segment), 6)
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(name: str, content: bytes) -> Segment:
    """MtsError `checksum_mismatch` for one that is damaged: what it held is not known, so nobody may guess."""
    start = len(MAGIC) + _DIGEST
    if content[: len(MAGIC)] != MAGIC:
        raise _damaged(name, "it does not begin as a segment of this version does")
    if hashlib.sha256(content[start:]).digest() != content[len(MAGIC) : start]:
        raise _damaged(name, "its checksum does not fit")
    try:
        return msgspec.msgpack.decode(zlib.decompress(content[start:]), type=Segment)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise _damaged(name, str(error)) from None


def _damaged(name: str, why: str) -> MtsError:
    return MtsError(
        "checksum_mismatch",
        f"the journal segment {name} is damaged: {why}",
        {"segment": name, "hint": "put the object back from a copy of the bucket, or go on without it: --skip-damaged"},
    )
