"""Shows how far a long command is: one live line a step on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_EVERY = 15.0
_TELL_EVERY = 0.2


class Step:
    """One step: `update` says what happens now, `done` what came out."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.outcome = "done"
        self.started = time.monotonic()

    def update(self, detail: str) -> None:
        self.detail = detail

    def done(self, outcome: str) -> None:
        self.outcome = outcome

    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes}:{seconds:02}"


class Console:
    """Writes to stderr, so that stdout holds the result only."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        step = Step(title)
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(step, ended), daemon=True)
        watcher.start()
        mark = "✗"
        try:
            yield step
            mark = "✓"
        except BaseException:
            step.outcome = "failed"
            raise
        finally:
            ended.set()
            watcher.join()
            self._clear()
            self.say(f"{mark} {step.title:<14} {step.outcome}")

    def _watch(self, step: Step, ended: threading.Event) -> None:
        if self._live:
            self._spin(step, ended)
        else:
            self._tell(step, ended)

    def _spin(self, step: Step, ended: threading.Event) -> None:
        turn = 0
        while not ended.wait(0.1):
            turn += 1
            text = f"{step.title:<14} {step.detail or 'working'} [{step.elapsed()}]"
            self._stream.write(f"\r\x1b[2K{_FRAMES[turn % len(_FRAMES)]} {text[: _width() - 2]}")
            self._stream.flush()

    def _tell(self, step: Step, ended: threading.Event) -> None:
        told, next_time = "", 0.0
        while not ended.wait(_TELL_EVERY):
            # A detail that changes all the time (a count) is told now and then, a new kind of work at once.
            kind = step.detail.partition(":")[0]
            if kind and (kind != told or time.monotonic() > next_time):
                self.say(f"  {step.title:<14} {step.detail} [{step.elapsed()}]")
                told, next_time = kind, time.monotonic() + _PLAIN_EVERY

    def _clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[2K")


def _width() -> int:
    import shutil

    return max(shutil.get_terminal_size().columns - 1, 20)
