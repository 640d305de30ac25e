"""How values of rows are written in SQLite, and how what drivers return becomes what the port promises."""

from __future__ import annotations

import json
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


def from_cql(kind: str, value: Any) -> Any:
    """The driver's times are naive and UTC."""
    if kind.startswith("set"):
        return frozenset(value or ())
    if kind.startswith("map"):
        return dict(value or {})
    if kind == "timestamp" and value is not None:
        return value.replace(tzinfo=UTC)
    return 0 if kind == "counter" and value is None else value


@cache
def other_in_cql(table: Table) -> tuple[tuple[str, str], ...]:
    """Columns whose values the driver does not return as the port promises."""
    return tuple((name, kind) for name, kind in table.columns if kind in ("timestamp", "counter") or kind.endswith(">"))
