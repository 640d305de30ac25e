"""What keeps the metadata store and the bucket in step: the ceiling, the journal, snapshots, and the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Position:
    """Where the store stands. `planned` and `number` are the largest ceiling and journal segment that it may have
    written to the bucket: with a larger one there, the store is older than its bucket."""

    given: int
    top: int
    planned: int
    number: int
    recovery: str | None = None
    recovery_reason: str | None = None
    journal_at: int | None = None
    """While a restore waits for the operator: the time of the last segment that was replayed."""


@dataclass(frozen=True, slots=True)
class JournalStep:
    """Rows that the bucket does not hold, and how to ask for those behind them. `complete`: there are none. `holes` are
    those of `removed` that nothing else tells of."""

    rows: list[list[Any]]
    side: list[list[Any]]
    removed: list[int]
    position: Mapping[str, Any]
    complete: bool
    holes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class JournalLag:
    """`behind` sequences are not in the bucket, the first of them for `seconds`. `waiting`: something is to be written.
    `at`, `checkpoint_at`: milliseconds of the last round and checkpoint, 0 for none."""

    number: int
    upto: int
    at: int
    checkpoint_at: int
    behind: int
    seconds: int
    waiting: bool


class JournalStore(Protocol):
    """The side that is written to the bucket."""

    async def position(self) -> Position: ...

    async def need_recovery(self, reason: str) -> str:
        """The bucket is ahead: nothing is published from now on. Answers the state (`needed`, or a later one)."""

    async def plan_ceiling(self, target: int) -> None: ...

    async def raise_ceiling(self, target: int) -> int: ...

    async def read_journal(
        self, position: Mapping[str, Any] | None, limit: int, *, checkpoint: bool = False
    ) -> JournalStep: ...

    async def plan_segment(self, seen: int) -> int | None:
        """The next segment's number; None when another writer took one since `seen` was the last."""

    async def ack_segment(self, number: int, position: Mapping[str, Any], *, complete: bool) -> bool: ...

    async def journal_lag(self) -> JournalLag: ...

    async def living(self, ranges: Sequence[tuple[int, int]]) -> list[bool]:
        """Which ranges of sequences (the first exclusive) still hold a message."""

    async def objects_after(self, sequence: int, limit: int) -> list[tuple[int, str, bool]]:
        """Sequence, object and whether its payload was never verified, of extents behind a sequence."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of what was applied: uploads that wait, extents that are there."""

    held: int
    extents: int


class RestoreStore(Protocol):
    """Snapshots of the metadata store, and rows back into it. Nothing is published while they come."""

    async def begin_backup(self) -> tuple[str, int]:
        """A snapshot's file name and size."""

    async def read_backup(self, name: str, offset: int, size: int) -> bytes: ...

    async def end_backup(self) -> None: ...

    async def begin_restore(self, *, anew: bool) -> None:
        """Nothing is given out from now on. `anew`: side rows come from the journal alone."""

    async def apply(self, rows: Sequence[Any], side: Sequence[Any], removed: Sequence[int]) -> None: ...

    async def settle(self, told: int) -> Settled:
        """`told`: up to this sequence all that belongs to messages was applied too; 0 when that is not known."""

    async def drop(self, sequences: Sequence[int]) -> None:
        """Extents whose payloads are gone."""

    async def delete_again(self, record: Mapping[str, Any]) -> bool:
        """A deletion for good {id, kind, subject, who, reason, sequences, upto} once more; was any of it back?"""

    async def discard_deleted(self, names: Sequence[str]) -> int:
        """Payloads of deleted messages that nothing points at go now; how many."""

    async def finish_restore(self, base: int, top: int, number: int, journal_at: int) -> int:
        """Go on behind `base`; answers the last sequence that is stored."""

    async def known_objects(self, names: Sequence[str]) -> list[bool]:
        """Which of them something other than a message knows: uploads, packs, the trash."""

    async def adopt_pack(
        self, name: str, groups: Sequence[Mapping[str, Any]], purge: Mapping[str, Any] | None = None
    ) -> int:
        """How many messages became visible. `purge`: the pack also holds messages of this deletion {id, subject, who,
        reason, upto}, and is to be written anew without them."""

    async def adopt_payload(self, name: str, about: Mapping[str, Any]) -> int: ...

    async def discard_orphans(self, names: Sequence[str]) -> int: ...

    async def end_recovery(self, *, adopted: bool) -> int:
        """From now on orphans are deleted as usual; answers how many held uploads were ended."""
