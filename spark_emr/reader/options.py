"""What a reader asks for, from the options of a data source or the arguments of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from minitoolstream.domain.checks import check_number
from minitoolstream.domain.consumer import check_durable, read_time
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import MAX_SEQUENCE, MIB
from minitoolstream.domain.subject import check_subject
from minitoolstream.setting_values import boolean, size

ON_MISSING = ("fail", "skip", "null")
ON_HOLE = ("ignore", "fail")
LARGE = ("reference", "chunks")
PLAN_FROM = ("tarantool", "journal")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which messages, and what of them. Sequences and times are inclusive, but for `to_time`.

    `on_missing` is about payloads that are gone or damaged, `on_hole` about messages that expired or were deleted
    inside the range. Payloads above `large_bytes` are left in the store, or come in several rows of `chunk_bytes`.
    """

    subject: str
    from_sequence: int = 1
    to_sequence: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    partition: int | None = None
    payload: bool = False
    decode: bool = True
    checksum: bool = True
    large: str = "reference"
    large_bytes: int = 64 * MIB
    chunk_bytes: int = 8 * MIB
    on_missing: str = "fail"
    on_hole: str = "ignore"
    plan: str = "tarantool"
    partition_bytes: int = 128 * MIB
    partitions: int = 0
    start: str = "first"
    durable: str | None = None
    batch_messages: int = 0

    def __post_init__(self) -> None:
        if self.to_sequence is not None and self.from_sequence > self.to_sequence:
            raise bad_request(f"fromSequence {self.from_sequence} is behind toSequence {self.to_sequence}")
        if self.from_time is not None and self.to_time is not None and self.from_time >= self.to_time:
            raise bad_request("fromTime must be before toTime")

    @property
    def chunked(self) -> bool:
        """Rows are chunks of payloads, and have a number."""
        return self.payload and self.large == "chunks"


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return text

    return parse


def _between(least: int, most: int, parse: Callable[[Any], int] = int) -> Callable[[str], int]:
    def checked(text: str) -> int:
        value = parse(text)
        if not least <= value <= most:
            raise ValueError(f"it must be between {least} and {most}")
        return value

    return checked


_PARSERS: dict[str, Callable[[str], Any]] = {
    "subject": check_subject,
    "from_sequence": lambda text: check_number(text, "fromSequence"),
    "to_sequence": lambda text: check_number(text, "toSequence"),
    "from_time": lambda text: read_time(text, "fromTime"),
    "to_time": lambda text: read_time(text, "toTime"),
    "partition": _between(0, 2**31 - 1),
    "payload": boolean,
    "decode": boolean,
    "checksum": boolean,
    "large": _one_of(LARGE),
    "large_bytes": _between(1, 512 * MIB, size),
    "chunk_bytes": _between(64 * 1024, 64 * MIB, size),
    "on_missing": _one_of(ON_MISSING),
    "on_hole": _one_of(ON_HOLE),
    "plan": _one_of(PLAN_FROM),
    "partition_bytes": _between(1, 2**40, size),
    "partitions": _between(0, 100_000),
    "start": str,
    "durable": check_durable,
    "batch_messages": _between(0, MAX_SEQUENCE),
}
_NAMES = {field.name.replace("_", ""): field.name for field in fields(ReadOptions)}
_SPARKS_OWN = frozenset({"path", "paths"})


def option_name(field: str) -> str:
    """`from_sequence` as users of Spark write it: `fromSequence`."""
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Options by their names, in upper or lower case. What is wrong or unknown is an MtsError `bad_request`."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        key = _NAMES.get(name.lower().replace("_", ""))
        if key is None:
            if name.lower() in _SPARKS_OWN:
                continue
            known = ", ".join(option_name(field) for field in _NAMES.values())
            raise bad_request(f"there is no option {name!r}; there are {known}", field=name)
        try:
            values[key] = _PARSERS[key](str(text))
        except ValueError as error:
            raise bad_request(f"option {option_name(key)}: {error}", field=option_name(key)) from None
    if "subject" not in values:
        raise bad_request("the option subject is missing: which messages?", field="subject")
    return ReadOptions(**values)
