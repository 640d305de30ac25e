"""Where the content catalog keeps its rows, and the object stores that hold copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from minitoolstream.domain.catalog_tables import Table
from minitoolstream.domain.placement import Peer
from minitoolstream.ports.payloads import PayloadStore, Signer

Row = dict[str, Any]
"""Columns by name. Times are aware and whole milliseconds; an empty set or map is one, never None."""
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Writes these columns and leaves the others as they are. `life`: seconds until the row goes by itself; 0
    for ever, also where the table has a life of its own. `plus` and `minus` are elements that sets gain and lose,
    whatever else they hold."""

    table: Table
    row: Mapping[str, Any]
    life: int | None = None
    plus: Mapping[str, frozenset[str]] | None = None
    minus: Mapping[str, frozenset[str]] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    table: Table
    key: Key


Change = Put | Delete


class CatalogStore(Protocol):
    """Rows of the catalog's tables. Every failure is an MtsError; `unavailable` when the engine is down, and then what
    was being written may or may not be."""

    async def get(self, table: Table, key: Key) -> Row | None: ...

    async def get_many(self, table: Table, keys: Sequence[Key]) -> list[Row | None]: ...

    async def page(
        self, table: Table, partition: Key, limit: int, *, after: Key = (), until: Key = (), descending: bool = False
    ) -> list[Row]:
        """Rows of a partition in the order of their keys, behind `after` and up to `until`: beginnings of a clustering
        key."""

    async def walk(self, table: Table, cursor: str | None, limit: int) -> tuple[list[Row], str | None]:
        """All rows of a table in some order, page by page; the cursor is None at the end."""

    async def write(self, changes: Sequence[Change]) -> None:
        """All or, after a failure, sooner or later all or none of them."""

    async def write_each(self, changes: Sequence[Change]) -> None:
        """The same, each for itself: faster where nothing depends on all of them being there."""

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        """As `write_each`; what is in a step is there before anything of the next."""

    async def put_new(self, table: Table, row: Mapping[str, Any], life: int | None = None) -> Row | None:
        """Written unless there is a row of this key: that one is returned then."""

    async def put_if(self, table: Table, row: Mapping[str, Any], expected: Mapping[str, Any]) -> Row | None:
        """Columns of a row that exists and holds what is expected. None when it was written, else the row as it is,
        which is empty when there is none."""

    async def delete_if(self, table: Table, key: Key, expected: Mapping[str, Any]) -> bool: ...

    async def add(self, table: Table, key: Key, amounts: Mapping[str, int]) -> None:
        """Counters; a repeated call counts twice."""

    async def migrate(self) -> list[str]:
        """The versions that were applied now."""

    async def versions(self) -> tuple[list[str], list[str]]:
        """Those that are applied, and those that wait."""

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class PeerStores(Protocol):
    """The object stores that the settings name."""

    def peers(self) -> Sequence[Peer]: ...

    def payloads(self, peer_id: str) -> PayloadStore:
        """MtsError `not_found` for one that is not configured (any more)."""

    def signer(self, peer_id: str) -> Signer: ...

    async def close(self) -> None: ...
