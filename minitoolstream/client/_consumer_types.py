"""Durables as the SDK shows them, and what a reader may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from minitoolstream.client._types import Start, moment_of
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import wire_number


@dataclass(frozen=True, slots=True)
class ConsumerPartition:
    """A durable's place in one partition; `session_id` names the reader that has it now, if any."""

    partition: int
    lag: int = 0
    offset: int | None = None
    position: int | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A durable: everything up to `last_sequence` is acked, `lag` messages are not.

    Example: `print(client.consumers.get("orders", "billing").lag)`
    """

    durable: str
    subject: str
    mode: str
    last_sequence: int
    latest_sequence: int = 0
    lag: int = 0
    partitions: tuple[ConsumerPartition, ...] = ()
    important: bool = False
    filter: tuple[dict[str, Any], ...] | None = None
    max_deliver: int | None = None
    ack_wait: int | None = None
    dead_letter: str | None = None
    outstanding: int = 0
    sessions: int = 0
    created_at: int | None = None


def start_shape(start: Start) -> Any:
    """As it stands in JSON."""
    if isinstance(start, datetime):
        return {"time": moment_of(start)}
    return wire_number(start) if isinstance(start, int) else start


def filter_shape(conditions: str | Sequence[str]) -> list[dict[str, str]]:
    """`name=value` and `name^=prefix`, as they stand in JSON."""
    return [_condition(text) for text in as_conditions(conditions)]


def filter_word(conditions: str | Sequence[str]) -> str | None:
    """The same, as it stands in a query."""
    escaped = (text.replace("\\", "\\\\").replace(",", "\\,") for text in as_conditions(conditions))
    return ",".join(escaped) or None


def as_conditions(given: str | Sequence[str]) -> tuple[str, ...]:
    conditions = (given,) if isinstance(given, str) else tuple(given)
    for text in conditions:
        _condition(text)
    return conditions


def _condition(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    by_prefix = name.endswith("^")
    name = name.removesuffix("^")
    if not equals or not name:
        raise bad_request(f"a filter is name=value or name^=prefix, not {text[:80]!r}", field="filter")
    return {"header": name, "prefix" if by_prefix else "equals": value}
