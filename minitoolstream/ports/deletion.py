"""Deletions that must be finished, and packs that are written anew for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from minitoolstream.domain.compaction import RowMove
from minitoolstream.domain.deletion import Deletion, Kept, Move


@dataclass(frozen=True, slots=True)
class DeletionWork:
    """What is left of a deletion: objects to delete from the store, which are in the trash, and packs to write anew."""

    deletion: Deletion
    trash: list[str]
    rewrite: list[str]


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """What of a pack is to be kept; `missing` are keys of rows without payload, which have nothing to keep."""

    kept: list[Kept]
    missing: list[int]


class DeletionStore(Protocol):
    """Rows of what is deleted go at once; whoever calls `work` next goes on with the rest. Durable when answered."""

    async def delete_message(self, sequence: int, who: str, reason: str) -> Deletion:
        """The message and all that share its payload. Asked again within a day, the same is answered; `not_found`
        when there is no such message, `inconsistent` when what is counted does not fit what is there."""

    async def purge_subject(self, subject: str, who: str, reason: str) -> Deletion:
        """All messages that it has now; one that is not finished is answered again."""

    async def work(self, deletion_id: str, limit: int) -> DeletionWork:
        """Removes some rows, if any are left, and says what is to be done in the store."""

    async def open_deletions(self, limit: int) -> list[Deletion]: ...

    async def trim(self) -> int:
        """Forget finished ones of yesterday; how many."""

    async def plan(self, object_name: str, target: str) -> RewritePlan | None:
        """Someone writes `target` in the place of a pack; None when nothing has to be erased there any more."""

    async def switch(self, object_name: str, target: str, moves: Sequence[Move], missing: Sequence[int]) -> bool:
        """All rows point at the target from now on, and the old object is in the trash; False when something
        changed since the plan: then the target is."""

    async def move_rows(self, target: str, moves: Sequence[RowMove]) -> bool:
        """All these rows point at the pack `target` from now on, and what they pointed at goes as any payload does;
        False when one of them is not as it was: then none moves, and the target goes at once."""
