"""What a run came to, as a table for a person and an exit code for a machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

_SHOWN = 5


@dataclass
class Summary:
    """`recoveries`: by part, the seconds of each of its cycles until it worked again."""

    seed: int
    recoveries: dict[str, list[float]] = field(default_factory=dict)
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
        widths = (22, 10, 16, 10)
        lines = [_row(widths, "killed (kill -9)", "cycles", "recovery p50", "max")]
        for part, seconds in sorted(self.recoveries.items()):
            lines.append(_row(widths, part, len(seconds), f"{statistics.median(seconds):.1f} s", f"{max(seconds):.1f} s"))
        whole = [one for seconds in self.recoveries.values() for one in seconds]
        if whole:
            lines.append(_row(widths, "all", self.cycles, f"{statistics.median(whole):.1f} s", f"{max(whole):.1f} s"))
        lines.append("")
        lines.append(_row(widths, "acknowledged", f"{self.acknowledged:,}"))
        for title, found in self._faults().items():
            lines.append(_row(widths, title, len(found)))
            lines += [f"    {one}" for one in found[:_SHOWN]]
        clean = sum(1 for verdict in self.verdicts if verdict == "clean")
        lines.append(_row(widths, "mts fsck --deep", f"{clean} of {len(self.verdicts)} clean"))
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


def _row(widths: Sequence[int], *cells: object) -> str:
    first, *rest = cells
    return f"{first:<{widths[0]}}" + "".join(
        f"{cell!s:>{width}}" for cell, width in zip(rest, widths[1:], strict=False)
    )
