"""Durables: what readers may ask for, what the server keeps of them, and how a selection of messages is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from minitoolstream.domain.checks import check_number
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import (
    MAX_CONDITIONS,
    MAX_DURABLE_LENGTH,
    MAX_HEADERS_BYTES,
    MAX_PARTITIONS_PER_ACK,
    MAX_SEQUENCE,
)
from minitoolstream.domain.message import Extent

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_DURABLE_LENGTH - 1}}}\Z")
_UNIX_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?\Z")
_UNESCAPED_COMMA = re.compile(r"(?:[^\\,]|\\.)*", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

Word = Literal["first", "last", "new"]
WORDS: dict[str, Word] = {"first": "first", "last": "last", "new": "new"}
Mode = Literal["ordered", "shared"]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that became visible at this unix time or later."""

    seconds: int


Start = int | Word | AtTime


@dataclass(frozen=True, slots=True)
class Condition:
    """What a header must be. All conditions of a filter must hold."""

    header: str
    op: Literal["equals", "prefix"]
    value: str


Filter = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What a PUT asks of a durable; None leaves it as it is, or at its default."""

    mode: Mode | None = None
    important: bool | None = None
    filter: Filter | None = None
    max_deliver: int | None = None
    ack_wait: int | None = None
    dead_letter: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerPartition:
    """`position` is the sequence up to which all is acked; `offset` that of the last acked message, if any."""

    partition: int
    position: int
    lag: int
    offset: int | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    durable: str
    subject: str
    mode: str
    last_sequence: int
    latest_sequence: int
    lag: int
    partitions: tuple[ConsumerPartition, ...]
    filter: Filter
    important: bool = False
    max_deliver: int | None = None
    ack_wait: int | None = None
    dead_letter: str | None = None
    outstanding: int = 0
    sessions: int = 0
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """A partition that a session reads; the fence goes along with its acks."""

    partition: int
    fence: int
    position: int


@dataclass(frozen=True, slots=True)
class Session:
    session_id: str
    epoch: int
    ttl: int
    partitions: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class PartitionAck:
    """`read_from`: the position that was read from, which counts in a transaction."""

    partition: int
    fence: int
    sequence: int
    read_from: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Messages that one worker has until `expires_at_ms`, by the server's clock.

    `tries` are (first, last, deliveries) of runs of sequences; `due_in_ms` says when something that others hold
    may come back.
    """

    lease_id: str | None
    extents: tuple[Extent, ...]
    tries: tuple[tuple[int, int, int], ...]
    expires_at_ms: int
    due_in_ms: int | None


def check_durable(name: str) -> str:
    return _checked(name, "durable")


def check_session_id(name: str) -> str:
    return _checked(name, "session_id")


def _checked(name: str, field: str) -> str:
    if not _NAME.match(name):
        raise bad_request(
            f"{field} {name[:80]!r} is not valid: use 1 to {MAX_DURABLE_LENGTH} of A-Z a-z 0-9 . _ -, "
            "starting with a letter or digit",
            field=field,
        )
    return name


def read_start(text: int | str, field: str = "start") -> Start:
    """A sequence, `first`, `last`, `new`, or `time:` and a time."""
    if isinstance(text, str):
        if text in WORDS:
            return WORDS[text]
        if text.startswith("time:"):
            return AtTime(read_time(text.removeprefix("time:"), field))
        if not text.isdigit():
            raise bad_request(
                f"{field} {text[:40]!r} is not a sequence, first, last, new, or time:<unix seconds or ISO 8601>",
                field=field,
            )
    return check_number(text, field)


def read_time(value: float | str, field: str) -> int:
    """Whole unix seconds of a number or an ISO 8601 text; without an offset it is UTC."""
    moment = _unix_time(value, field) if isinstance(value, str) else value
    if not 0 <= moment <= MAX_SEQUENCE // 1000:
        raise bad_request(f"{field}: the time must not be before 1970", field=field)
    seconds = int(moment)
    return seconds if seconds == moment else seconds + 1  # messages carry whole seconds


def _unix_time(text: str, field: str) -> float:
    if _UNIX_SECONDS.match(text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise bad_request(f"{field}: {text[:40]!r} is neither unix seconds nor an ISO 8601 time", field=field) from None


def read_filter(text: str) -> Filter:
    """`name=value` and `name^=prefix`, separated by commas; a backslash before a comma or backslash keeps it."""
    conditions = []
    at = 0
    while at <= len(text):
        match = _UNESCAPED_COMMA.match(text, at)
        assert match is not None
        conditions.append(_condition(match.group()))
        if match.end() < len(text) and text[match.end()] != ",":
            raise bad_request("filter ends in a backslash; write two for one", field="filter")
        at = match.end() + 1
    return check_filter(conditions)


def _condition(text: str) -> Condition:
    name, equals, value = text.partition("=")
    if not equals:
        raise bad_request(
            f"filter {text[:40]!r} is not name=value or name^=prefix; several are separated by commas", field="filter"
        )
    op: Literal["equals", "prefix"] = "equals"
    if name.endswith("^"):
        name, op = name[:-1], "prefix"
    return Condition(_unescaped(name), op, _unescaped(value))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def check_filter(conditions: Sequence[Condition]) -> Filter:
    if len(conditions) > MAX_CONDITIONS:
        raise bad_request(f"a filter has at most {MAX_CONDITIONS} conditions", field="filter")
    size = 0
    for condition in conditions:
        if not condition.header:
            raise bad_request("a condition of the filter names no header", field="filter")
        try:
            size += len(condition.header.encode()) + len(condition.value.encode())
        except UnicodeEncodeError:
            raise bad_request("filter is not valid UTF-8", field="filter") from None
    if size > MAX_HEADERS_BYTES:
        raise bad_request(f"filter is larger than {MAX_HEADERS_BYTES} bytes", field="filter")
    return tuple(conditions)


def read_after(text: str) -> tuple[tuple[int, ...], ...]:
    """`partition:sequence` or `partition:sequence:fence`, separated by commas: how far a session's reader got."""
    found = []
    for one in text.split(","):
        numbers = one.split(":")
        if not 2 <= len(numbers) <= 3:
            raise bad_request(f"after {one[:40]!r} is not partition:sequence:fence", field="after")
        found.append(tuple(check_number(number, "after") for number in numbers))
    if len(found) > MAX_PARTITIONS_PER_ACK:
        raise bad_request(f"after has more than {MAX_PARTITIONS_PER_ACK} partitions", field="after")
    return tuple(found)
