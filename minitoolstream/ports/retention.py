"""How long messages stay, and what goes when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from minitoolstream.domain.retention import Retention, SweepStep


class RetentionStore(Protocol):
    """Expiry in the metadata store. Every answer is durable when it comes."""

    async def apply(self, config: Mapping[str, Any], grace: int, *, given: bool) -> bool:
        """A host's settings: they count when somebody wrote down (`given`) others than were applied before, and else
        where no operator has configured anything. True when they do. `grace`: seconds by which a payload outlives its
        message."""

    async def configure(self, changes: Mapping[str, Any]) -> None:
        """What an operator changes: `enabled`, `default_ttl`, `check_interval`, `channels`."""

    async def status(self) -> Retention: ...

    async def step(self, limit: int) -> SweepStep:
        """Expire some of what is due, and remember where that ended: the next call goes on there."""

    async def compare_clocks(self, store_ms: int) -> tuple[bool, int]:
        """The object store's time, as it is now: whether the two agree, and by how many milliseconds the metadata
        store's clock is ahead."""
