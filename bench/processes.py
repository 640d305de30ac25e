"""CPU and memory of a process and its children, read from /proc."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_SIZES = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)
_SAMPLE_EVERY = 0.2  # a look walks the page tables of what is measured


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
    """Resident memory of the tree; pages that its processes share with each other count once."""
    private, shared = 0, [0]
    for process in tree(pid):
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        sizes = {name: int(kilobytes) for name, kilobytes in _SIZES.findall(rollup)}
        private += sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
        shared.append(sizes.get("Shared_Clean", 0) + sizes.get("Shared_Dirty", 0))
    return (private + max(shared)) * 1024


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
