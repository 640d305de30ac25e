"""Subjects and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from minitoolstream.domain.lanes import Lanes
from minitoolstream.domain.subject_settings import Subject


class SubjectStore(Protocol):
    """Subjects and their settings. An unknown subject is an MtsError `unknown_subject`."""

    async def put(self, subject: str, changes: Mapping[str, Any]) -> tuple[Subject, bool]:
        """Make or change it; True when it was made."""

    async def get(self, subject: str) -> Subject: ...

    async def delete(self, subject: str) -> bool:
        """Gone at once; True when there is something left to clear away."""

    async def clear_deleted(self, limit: int) -> tuple[int, bool]:
        """Clear away rows of deleted subjects: how many, and whether there are more."""

    async def lanes(self, subject: str) -> Lanes | None:
        """Its active partitions; None when nobody knows it, which is one partition to come."""

    async def split_partitions(self) -> int:
        """Split what has been too busy for long enough; how many were."""

    async def trim_routes(self) -> int:
        """Forget producers' partitions that were not used for long; how many."""
