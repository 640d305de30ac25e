"""A bucket's settings in memory, for tests of services."""

from __future__ import annotations

from collections.abc import Sequence

from minitoolstream.domain.lifecycle import BucketState, LifecycleRule


class MemoryBucket:
    """Fulfils `ports.BucketStore`. A test may change `rules` and `about`, and sees how often rules were `written`."""

    def __init__(self) -> None:
        self.rules: list[LifecycleRule] = []
        self.about = BucketState("off", object_lock=False)
        self.written = 0

    async def lifecycle(self) -> list[LifecycleRule]:
        return list(self.rules)

    async def set_lifecycle(self, rules: Sequence[LifecycleRule]) -> None:
        self.rules = list(rules)
        self.written += 1

    async def state(self) -> BucketState:
        return self.about
