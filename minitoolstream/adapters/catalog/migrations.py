"""The schema's versions as data: `catalog/migrations/<version>.cql`, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minitoolstream.adapters.catalog.cql_schema import statements


@dataclass(frozen=True, slots=True)
class Migration:
    """`{keyspace}` and `{replication}` are still to be filled in."""

    version: str
    statements: tuple[str, ...]


def read_migrations(folder: Path) -> list[Migration]:
    files = sorted(folder.glob("*.cql"), key=lambda file: [int(part) for part in file.stem.split(".")])
    return [Migration(file.stem, tuple(statements(file.read_text("utf-8")))) for file in files]
