"""Subjects as the SDK shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SubjectInfo:
    """A subject in a list: how many partitions, messages and bytes it has."""

    subject: str
    partitions: int
    created_at: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SubjectPartition:
    """An ordering lane. One that has split is not active: it is read to its end, then its `children` are."""

    partition: int
    active: bool
    messages: int
    bytes: int
    next_offset: int
    hash_from: int = 0
    hash_to: int = 0
    parent: int | None = None
    children: tuple[int, ...] | None = None
    split_at: int | None = None


@dataclass(frozen=True, slots=True)
class SubjectUsed:
    """What counts against the quotas: what is stored, and what open tickets have reserved."""

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SubjectDetails:
    """A subject with its settings, counters and partitions; `used` is what counts against its quotas,
    `expires_after` the seconds that its messages stay.

    Example: `print(client.subjects.get("orders").settings["codecs"])`
    """

    subject: str
    incarnation: int
    created_at: int
    messages: int
    bytes: int
    latest_sequence: int
    consumers: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    used: SubjectUsed = field(default_factory=SubjectUsed)
    partitions: tuple[SubjectPartition, ...] = ()
    expires_after: int | None = None
