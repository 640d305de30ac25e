"""How values of rows are written in SQLite, and how what drivers return becomes what the port promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from minitoolstream.domain.catalog_tables import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def _aware(value: datetime | None) -> datetime | None:
    """The driver's times are naive and UTC."""
    return value.replace(tzinfo=UTC) if value is not None else None


def _reader(kind: str) -> Callable[[Any], Any] | None:
    """What makes a value that the driver returned one that the port promises; None where it is one already."""
    if kind.startswith("set"):
        return lambda value: frozenset(value or ())
    if kind.startswith("map"):
        return lambda value: dict(value or {})
    return {"timestamp": _aware, "counter": lambda value: value or 0}.get(kind)


@cache
def cql_readers(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Of the columns that need one."""
    readers = ((name, _reader(kind)) for name, kind in table.columns)
    return tuple((name, reader) for name, reader in readers if reader is not None)
