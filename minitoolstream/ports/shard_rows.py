"""A shard's database, where the pipeline's rows end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class ShardRows(Protocol):
    """Not a coroutine's: daemons are ordinary code."""

    def replace(self, filename: str, shard: int, rows: Iterable[tuple[str, str]]) -> None:
        """These rows (key, JSON) are all that there is of a file and shard, in one transaction. They are asked for once
        more when the transaction lost against another, so an iterator will not do."""

    def close(self) -> None: ...
