"""The ceiling and the journal in memory, for tests of services. The contract tests hold it against real Tarantool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from minitoolstream.adapters.memory.metadata import MemoryMetadata
from minitoolstream.adapters.memory.order import Order
from minitoolstream.ports import JournalLag, JournalStep, Position


class MemoryJournal:
    """Fulfils `ports.JournalStore` over the rows of a MemoryMetadata. Beside messages it knows no rows; a test may mark
    one as changed in `side`."""

    def __init__(self, metadata: MemoryMetadata) -> None:
        self._metadata = metadata
        self.side: list[list[Any]] = []
        self._top = self._planned = self._number = self._upto = self._at = self._checkpoint_at = 0
        self._recovery: tuple[str, str] | None = None
        self._walked = False

    async def position(self) -> Position:
        state, reason = self._recovery or (None, None)
        order = self._order()
        return Position(order.watermark, self._top, self._planned, self._number, state, reason)

    async def need_recovery(self, reason: str) -> str:
        self._recovery = self._recovery or ("needed", reason)
        return self._recovery[0]

    async def plan_ceiling(self, target: int) -> None:
        self._planned = max(self._planned, target)

    async def raise_ceiling(self, target: int) -> int:
        self._top = max(self._top, target)
        self._planned = max(self._planned, target)
        return self._top

    async def read_journal(
        self, position: Mapping[str, Any] | None, limit: int, *, checkpoint: bool = False
    ) -> JournalStep:
        order = self._order()
        if position is None:
            full = checkpoint or not self._walked
            position = {"from": self._upto, "number": self._number, "stamp": 0, "checkpoint": full}
        rows = [row for row in order.rows if row.sequence > position["from"]][:limit]
        full = len(rows) == limit
        side = [] if full else self.side[position["stamp"] :][:limit]
        behind = {
            **position,
            "from": rows[-1].sequence if full else order.watermark,
            "stamp": position["stamp"] + len(side),
        }
        return JournalStep([list(astuple(row)) for row in rows], side, [], behind, not full and len(side) < limit)

    async def plan_segment(self, seen: int) -> int | None:
        if seen != self._number:
            return None
        self._number += 1
        return self._number

    async def ack_segment(self, number: int, position: Mapping[str, Any], *, complete: bool) -> bool:
        if number != self._number:
            return False
        self._upto = max(self._upto, position["from"])
        if complete:
            self._at = self._metadata.clock.milliseconds()
            del self.side[: position["stamp"]]
            if position["checkpoint"]:
                self._walked, self._checkpoint_at = True, self._at
        return True

    async def journal_lag(self) -> JournalLag:
        order = self._order()
        first = next((row for row in order.rows if row.sequence > self._upto), None)
        return JournalLag(
            self._number,
            self._upto,
            self._at,
            self._checkpoint_at,
            order.watermark - self._upto,
            max(self._metadata.clock.seconds() - first.create_at, 0) if first else 0,
            bool(self.side) or not self._walked,
        )

    async def living(self, ranges: Sequence[tuple[int, int]]) -> list[bool]:
        rows = self._order().rows
        return [any(row.sequence > after and row.sequence - row.count < upto for row in rows) for after, upto in ranges]

    async def objects_after(self, sequence: int, limit: int) -> list[tuple[int, str, bool]]:
        rows = (row for row in self._order().rows if row.sequence > sequence)
        return [(row.sequence, row.object_name, bool(row.unverified)) for row in rows][:limit]

    def _order(self) -> Order:
        return self._metadata.order
