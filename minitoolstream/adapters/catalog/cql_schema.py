"""The part of CQL that `catalog/*.cql` is written in: tables and columns that are made. All of it ScyllaDB has too."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS (?:\S+\.)?(\w+) \((.*?)\n\)\s*(?:WITH (.*))?\Z", re.DOTALL)
_ADD = re.compile(r"ALTER TABLE (?:\S+\.)?(\w+) ADD (\w+) ([\w<>, ]+)\Z")
_KEY = re.compile(r"PRIMARY KEY \(\(([^)]*)\)(?:, (.*))?\)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: str
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class AddColumn:
    table: str
    column: str
    kind: str


def statements(script: str) -> list[str]:
    """Without comments; none of our texts holds a semicolon."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def parse(statement: str) -> CreateTable | AddColumn | None:
    """None for a keyspace."""
    if added := _ADD.match(statement):
        return AddColumn(added[1], added[2], added[3])
    if created := _CREATE.match(statement):
        *columns, key = (line.strip().rstrip(",") for line in created[2].strip().splitlines())
        keys = _KEY.match(key)
        assert keys is not None, key
        pairs = tuple((name, kind) for name, _, kind in (column.partition(" ") for column in columns))
        options = frozenset(part.strip() for part in (created[3] or "").split("AND") if part.strip())
        return CreateTable(created[1], _names(keys[1]), _names(keys[2] or ""), pairs, options)
    if statement.startswith("CREATE KEYSPACE"):
        return None
    raise ValueError(f"not a statement of the catalog's schema: {statement[:60]}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
