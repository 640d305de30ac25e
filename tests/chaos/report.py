"""What a run came to, as a table for a person and an exit code for a machine."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_SHOWN = 5


@dataclass
class Summary:
    """`recoveries`: by part, the seconds of each of its cycles until it worked again. `kills`: some cycles kill another
    part beside."""

    seed: int
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cycles(self) -> int:
        return sum(map(len, self.recoveries.values()))

    def promises_kept(self) -> bool:
        broken = [*self.lost, *self.doubled, *self.reordered, *self.left_over, *self.problems]
        return not broken and bool(self.verdicts) and set(self.verdicts) == {"clean"}

    def table(self) -> str:
        whole = [one for seconds in self.recoveries.values() for one in seconds]
        lines = [_row("kill -9", "cycles", "kills", "recovery p50", "max")]
        for part, seconds in sorted(self.recoveries.items()):
            lines.append(_row(part, len(seconds), self.kills[part], *_spread(seconds)))
        lines += [_row("all", self.cycles, self.kills.total(), *_spread(whole)), ""]
        lines.append(_row("acknowledged", f"{self.acknowledged:,}"))
        for title, found in self._faults().items():
            lines.append(_row(title, len(found)))
            lines += [f"    {one}" for one in found[:_SHOWN]]
        clean = sum(1 for verdict in self.verdicts if verdict == "clean")
        lines.append(_row("fsck clean", f"{clean} of {len(self.verdicts)}"))
        minutes, seconds_left = divmod(int(self.seconds), 60)
        lines.append(f"seed {self.seed}, {minutes}:{seconds_left:02} minutes: {self._verdict()}")
        return "\n".join(lines)

    def _faults(self) -> dict[str, Sequence[str]]:
        shown: dict[str, Sequence[str]] = {
            "lost": self.lost,
            "doubled": self.doubled,
            "reordered": self.reordered,
            "left over": self.left_over,
        }
        return shown | ({"stopped by": self.problems} if self.problems else {})

    def _verdict(self) -> str:
        return "every promise was kept" if self.promises_kept() else "A PROMISE WAS BROKEN"


def _spread(seconds: Sequence[float]) -> tuple[str, str]:
    return (f"{statistics.median(seconds):.1f} s", f"{max(seconds):.1f} s") if seconds else ("-", "-")


def _row(title: str, *cells: object) -> str:
    return f"{title:<14}" + "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, (10, 8, 14, 8), strict=False))
