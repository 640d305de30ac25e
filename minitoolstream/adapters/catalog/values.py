"""How values of rows are written in SQLite, and how what drivers return becomes what the port promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from minitoolstream.domain.catalog_tables import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_MS = timedelta(milliseconds=1)
_SQL_TYPES = {"blob": "BLOB", "text": "TEXT", "double": "REAL"}


def to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS


def from_ms(number: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=number)


def sql_type(kind: str) -> str:
    if kind.startswith(("set", "map")):
        return "TEXT"
    return _SQL_TYPES.get(kind, "INTEGER")


def to_sql(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind.startswith("set"):
        return json.dumps(sorted(value)) if value else None
    if kind.startswith("map"):
        return json.dumps(dict(sorted(value.items()))) if value else None
    if kind == "timestamp":
        return to_ms(value)
    return value


def from_sql(kind: str, value: Any) -> Any:
    if kind.startswith("set"):
        return frozenset(json.loads(value)) if value else frozenset()
    if kind.startswith("map"):
        return json.loads(value) if value else {}
    if value is None:
        return None
    if kind == "timestamp":
        return from_ms(value)
    return bool(value) if kind == "boolean" else value


def _reader(kind: str) -> Callable[[Iterable[Any]], Iterable[Any]] | None:
    """What makes a column that the driver returned one that the port promises; None where it is one already."""
    if kind.startswith("set"):
        return lambda column: map(frozenset, (value or () for value in column))
    if kind.startswith("map"):
        return lambda column: map(dict, (value or () for value in column))
    if kind == "timestamp":  # naive and UTC; by a sum, since `replace` takes ten times as long
        return lambda column: [_EPOCH + (value - _NAIVE_EPOCH) if value is not None else None for value in column]
    return (lambda column: (value or 0 for value in column)) if kind == "counter" else None


@cache
def _readers(table: Table) -> tuple[tuple[int, Callable[[Iterable[Any]], Iterable[Any]]], ...]:
    """Of the columns that need one."""
    readers = ((at, _reader(kind)) for at, (_, kind) in enumerate(table.columns))
    return tuple((at, reader) for at, reader in readers if reader is not None)


def from_cql(table: Table, found: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as the driver returned them, all columns of the table. Read by column: few calls for many rows."""
    columns: list[Iterable[Any]] = list(zip(*found, strict=True))
    if not columns:
        return []
    for at, read in _readers(table):
        columns[at] = read(columns[at])
    names = tuple(table.types)
    return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]
