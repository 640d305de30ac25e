"""What a check of consistency asks the metadata store, and what it may mend there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from minitoolstream.domain.message import Extent


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What a row needs of an object; `first` is None for a whole, unframed one."""

    key: int
    count: int
    object_name: str
    first: int | None
    length: int
    unverified: bool
    missing: bool


@dataclass(frozen=True, slots=True)
class UploadFacts:
    """`in_pack`: it waits in a pack, and has no object of its own."""

    id: str
    state: str
    object_name: str
    in_pack: bool
    size: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A partition: what its rows give, and its `counters`, at one moment; None when it has none."""

    subject: str
    partition: int
    rows: int
    messages: int
    bytes: int
    unverified: int
    counters: Mapping[str, int] | None = None
    last_offset: int | None = None
    mended: bool = False

    @property
    def is_right(self) -> bool:
        """Offsets that were given are never given again."""
        if self.counters is None:
            return self.rows == 0
        same = all(self.counters[name] == getattr(self, name) for name in ("messages", "bytes", "unverified"))
        return same and (self.last_offset is None or self.counters["next_offset"] > self.last_offset)


@dataclass(frozen=True, slots=True)
class Pointing:
    """What points at an object, at one moment; `refs` is what is counted, None when nothing is written down."""

    rows: int
    stored: int
    refs: int | None
    trash: bool
    upload: str | None
    mended: bool = False

    @property
    def nothing(self) -> bool:
        return not (self.rows or self.stored or self.refs or self.trash or self.upload)

    @property
    def is_doomed(self) -> bool:
        return self.trash and self.rows + self.stored > 0

    @property
    def is_right(self) -> bool:
        if self.refs is None:
            return self.rows + self.stored <= 1 or self.trash
        return self.refs == self.rows + self.stored


@dataclass(frozen=True, slots=True)
class Summary:
    watermark: int
    time: int
    uploads: int
    trash: int
    missing: int
    deletions: int
    oldest_ticket: Mapping[str, Any] | None = None
    oldest_trash_due_at: int | None = None
    ceiling: int | None = None
    recovery: str | None = None


@dataclass(frozen=True, slots=True)
class LanePage:
    lanes: list[Lane] = field(default_factory=list)
    more: bool = False


class AuditStore(Protocol):
    """Pages are in the order of keys. What is counted holds for one moment, however much changes meanwhile."""

    async def rows(self, after: int, limit: int) -> list[RowFacts]: ...

    async def rows_at(self, keys: Sequence[int]) -> dict[int, Extent]:
        """Those of them that are there."""

    async def objects(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Names, and how many rows are counted to point at them."""

    async def uploads(self, after: str, limit: int) -> list[UploadFacts]: ...

    async def trash(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Names, and when they are due."""

    async def lanes(self, subject: str, partition: int) -> LanePage:
        """Partitions behind one."""

    async def names(self, names: Sequence[str]) -> dict[str, Pointing]: ...

    async def summary(self) -> Summary: ...

    async def mend_lane(self, subject: str, partition: int) -> Lane: ...

    async def mend_refs(self, names: Sequence[str]) -> int:
        """How many were wrong."""

    async def keep(self, names: Sequence[str]) -> list[str]:
        """Those that something points at and that were in the trash; they are no more."""

    async def discard_orphans(self, names: Sequence[str]) -> list[str]:
        """Those that nothing points at, in the trash now; `restored` while a restore waits for the operator."""

    async def quarantine(self, rows: Sequence[tuple[int, str, str]]) -> int:
        """Keep rows apart (a sequence of theirs, object name, reason) whose payload was looked for and not found; how
        many messages of them are. Rows that point elsewhere by now are not."""

    async def missing_packs(self, after: str, listed: Sequence[str]) -> list[str]:
        """Packs behind a name, up to the last of those that the bucket listed there, that rows point at and the
        listing does not have."""

    async def quarantine_object(self, name: str, reason: str) -> int:
        """The same for all rows of an object; how many messages."""

    async def release(self, keys: Sequence[int]) -> int:
        """Their payloads are there again; how many messages."""

    async def put_report(self, object_name: str, size: int) -> None:
        """The latest report is there now; the one before it is in the trash."""

    async def get_report(self) -> tuple[str, int] | None:
        """Where the latest report is, and its size."""
