"""What a process counts."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Counters of one process. Every call takes well under a microsecond, so nobody needs to think before counting."""

    def operation(self, part: str, operation: str, status: str) -> None:
        """One call to `tarantool` or `minio`, with how it ended (`ok`, or an error's code)."""

    def rejected(self, reason: str) -> None:
        """An event or object that was not committed, with the reason an operator shall see."""

    def committed(self, count: int) -> None:
        """Messages that became visible."""

    def delivered(self, count: int) -> None:
        """Messages handed to readers."""

    def expired(self, count: int) -> None:
        """Messages that had their time."""

    def deleted(self, count: int) -> None:
        """Objects that were deleted from the bucket."""

    def gauge(self, name: str, value: float) -> None:
        """A figure of the whole, as it was just measured; whoever measured last is right."""


class NoMetrics:
    """For those who count nothing: a Lambda, a test, a script."""

    def operation(self, part: str, operation: str, status: str) -> None: ...

    def rejected(self, reason: str) -> None: ...

    def committed(self, count: int) -> None: ...

    def delivered(self, count: int) -> None: ...

    def expired(self, count: int) -> None: ...

    def deleted(self, count: int) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...
