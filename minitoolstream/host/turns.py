"""Who is served next when many ask at once: a few requests between two turns of the loop, of each subject in turn.

A thousand readers of one subject that were woken come back together. Were they all begun as they came, whoever asks for
another subject would stand behind all of them, at each step of the way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

AT_ONCE = 2
_SUBJECTS = "/v1/subjects/"


class Turns:
    """Begins requests at once while few come; else those of each subject one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._left = AT_ONCE
        self._is_due = False

    def begin(self, path: str, begin: Callable[[], None]) -> None:
        if self._left > 0 and not self._waiting:
            self._left -= 1
            begin()
        else:
            self._waiting.setdefault(_lane(path), deque()).append(begin)
        self._come_back()

    def _come_back(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_due, self._left = False, AT_ONCE
        while self._left > 0 and self._waiting:
            self._left -= 1
            lane = next(iter(self._waiting))
            queue = self._waiting.pop(lane)
            begin = queue.popleft()
            if queue:
                self._waiting[lane] = queue  # behind all others
            begin()
        if self._waiting:
            self._come_back()


def _lane(path: str) -> str:
    """A subject; what is about none shares one by its kind."""
    if path.startswith(_SUBJECTS):
        return path[len(_SUBJECTS) :].partition("/")[0]
    return "/" + path[1:].partition("/")[2].partition("/")[0]
