"""CPU and memory of a process and its children, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_EVERY = 0.05


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for known in found:
        found.extend(child for child, parent in parents.items() if parent == known)
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree so far; 10 ms at a time, so only sums over seconds mean something."""
    total = 0
    for process in tree(pid):
        if fields := _stat(process):
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of the tree; pages that its processes share count in each."""
    total = 0
    for process in tree(pid):
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@dataclass
class Peak:
    """The highest resident memory seen while the block ran."""

    pid: int
    bytes: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, resident_bytes(self.pid))
            if self._ended.wait(_SAMPLE_EVERY):
                return

    @contextmanager
    def watching(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; None when the process is gone."""
    try:
        # The name in parentheses may itself hold spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
