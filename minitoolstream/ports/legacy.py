"""An installation of the first server, and the way its messages take into our order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    """A row of its space `message`. Headers and subject are as they were found there."""

    sequence: int
    headers: dict[Any, Any]
    object_name: str
    subject: str
    create_at: int


@dataclass(frozen=True, slots=True)
class LegacyPosition:
    """A row of its space `consumers`."""

    durable: str
    subject: str
    last_sequence: int


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A message as it is taken over; `size` and `content_type` are those of its payload, if it has one."""

    message: LegacyMessage
    headers: dict[str, str]
    size: int
    content_type: str | None
    is_missing: bool


@dataclass(frozen=True, slots=True)
class ImportState:
    """How far an import is."""

    upto: int
    done: bool


class LegacySource(Protocol):
    """Only read. Every failure is an MtsError."""

    name: str

    async def messages(self, after: int, limit: int) -> list[LegacyMessage]:
        """By sequence, behind one."""

    async def count(self) -> int: ...

    async def positions(self, after: tuple[str, str] | None, limit: int) -> list[LegacyPosition]:
        """By durable and subject, behind one."""

    async def close(self) -> None: ...


class ImportStore(Protocol):
    async def begin(self, source: str) -> ImportState:
        """From now on nothing is published until `finish`; `recovery_conflict` where messages are already."""

    async def apply(self, rows: Sequence[ImportRow]) -> int:
        """In the order of their sequences; what was applied before is passed over."""

    async def go_on_behind(self, sequence: int) -> None: ...

    async def finish(self) -> None: ...
