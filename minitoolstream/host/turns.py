"""Who is served next when many ask at once: one request between two turns of the loop, of each subject in turn.

A thousand readers of one subject that were woken come back together. Were they all begun as they came, whoever asks for
another subject would stand behind all of them, at each step of the way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_SUBJECTS = "/v1/subjects/"


class Turns:
    """Begins a request at once when it comes alone; else those of each subject one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._is_taken = False

    def begin(self, path: str, begin: Callable[[], None]) -> None:
        if self._is_taken:
            self._waiting.setdefault(_lane(path), deque()).append(begin)
        else:
            self._take(begin)

    def _take(self, begin: Callable[[], None]) -> None:
        self._is_taken = True
        try:
            begin()
        finally:  # one that fails to begin is not the end of all others
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_taken = False
        if self._waiting:
            lane = next(iter(self._waiting))
            queue = self._waiting.pop(lane)
            begin = queue.popleft()
            if queue:
                self._waiting[lane] = queue  # behind all others
            self._take(begin)


def _lane(path: str) -> str:
    """A subject; what is about none shares one by its kind."""
    if path.startswith(_SUBJECTS):
        return path[len(_SUBJECTS) :].partition("/")[0]
    return "/" + path[1:].partition("/")[2].partition("/")[0]
