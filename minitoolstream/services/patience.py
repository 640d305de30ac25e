"""Stores that do not answer, as a run of the reconciler, or a check, meets them."""

from __future__ import annotations

import time
from collections import Counter

from minitoolstream.domain.errors import MtsError

_MISSES = 3
_REST = 20.0
"""Seconds. A run may take hours, and a store be away for a moment of them."""


class Patience:
    """One that failed some times in a row is not asked any more: each content would wait for it, and keep others from
    stores that answer. After a rest it is asked again, and one more miss is enough. What is full takes nothing more at
    once; it can be read all the same, so writing is counted apart."""

    def __init__(self) -> None:
        self._misses: Counter[str] = Counter()
        self._over: dict[str, tuple[MtsError, float]] = {}

    def check(self, store: str) -> None:
        error, until = self._over.get(store, (None, 0.0))
        if error is None:
            return
        if time.monotonic() > until:
            del self._over[store]
            return
        raise MtsError(error.code, error.message, {**error.details, "not_asked": True})

    def answered(self, store: str) -> None:
        self._misses.pop(store, None)

    def failed(self, store: str, error: MtsError) -> None:
        if error.details.get("not_asked"):
            return
        if error.code != "unavailable":
            self.answered(store)
            return
        self._misses[store] += 1
        if self._misses[store] >= _MISSES or error.details.get("full"):
            self._over.setdefault(store, (error, time.monotonic() + _REST))
