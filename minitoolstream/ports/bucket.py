"""The bucket itself: its lifecycle, and what it does with what is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minitoolstream.domain.lifecycle import BucketState, LifecycleRule


class BucketStore(Protocol):
    """Settings of the bucket. Every failure is an MtsError; `not_configured` when the host's user may not."""

    async def lifecycle(self) -> list[LifecycleRule]: ...

    async def set_lifecycle(self, rules: Sequence[LifecycleRule]) -> None:
        """These and no others; one with `raw` is written as it was read."""

    async def state(self) -> BucketState: ...
