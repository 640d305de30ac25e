"""A progress line for transfers: bytes, rate and time left, on stderr, only where somebody can watch it."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_REDRAW_SECONDS = 0.1
_RATE_SECONDS = 5.0


class ProgressBar:
    """Call it with (done, total). A context manager: leaving it ends the line."""

    def __init__(self, label: str, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._shown = self._out.isatty()
        self._recent: deque[tuple[float, int]] = deque()
        self._drawn_at = 0.0
        self._width = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._out.write("\n")
            self._out.flush()
            self._width = 0

    def __call__(self, done: int, total: int) -> None:
        if not self._shown:
            return
        now = self._clock()
        if done < total and self._width and now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._recent.append((now, done))
        while now - self._recent[0][0] > _RATE_SECONDS:
            self._recent.popleft()
        self._draw(line_of(self._label, done, total, self._rate()))
        self._drawn_at = now

    def _rate(self) -> float | None:
        """Bytes a second over the last seconds; what was there already does not count."""
        (first, had), (last, has) = self._recent[0], self._recent[-1]
        return (has - had) / (last - first) if last > first and has > had else None

    def _draw(self, line: str) -> None:
        line = line[: shutil.get_terminal_size().columns - 1]
        self._out.write("\r" + line.ljust(self._width))
        self._out.flush()
        self._width = max(self._width, len(line))


class StepLine:
    """One line that tells what is being done and how far it is; call `show` with (what, done, total or None)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._shown = self._out.isatty()
        self._what = ""
        self._width = 0

    def show(self, what: str, done: int, total: int | None) -> None:
        if not self._shown:
            return
        if what != self._what:
            self.end()
        self._what = what
        line = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
        self._out.write("\r" + line.ljust(self._width))
        self._out.flush()
        self._width = max(self._width, len(line))

    def end(self) -> None:
        if self._width:
            self._out.write("\n")
            self._out.flush()
            self._width = 0


def line_of(label: str, done: int, total: int, rate: float | None) -> str:
    percent = 100 * done // total if total else 100
    line = f"{label}  {human_size(done)} / {human_size(total)}  {percent}%"
    if rate:
        line += f"  {human_size(int(rate))}/s"
        if done < total:
            line += f"  ETA {human_time((total - done) / rate)}"
    return line


def human_size(count: int) -> str:
    """1536 -> 1.5 KiB"""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def human_time(seconds: float) -> str:
    """75 -> 1:15"""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
