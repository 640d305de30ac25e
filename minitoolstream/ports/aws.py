"""What a function has of AWS beside the bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class SecretSource(Protocol):
    """Where secrets of the settings are kept and rotated."""

    async def read(self) -> Mapping[str, str]:
        """Settings' keys and their values, as they are now."""
        ...


class EventLetters(Protocol):
    """Where events go that can never work, for an operator to look at and send back."""

    async def put(self, body: str, reason: str) -> None: ...

    async def close(self) -> None: ...
