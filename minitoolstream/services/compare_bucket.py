"""Rows against objects after a restore: payloads that no row points at, and rows whose payload is missing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from minitoolstream.domain.keys import PACK_PREFIX, PAYLOAD_PREFIX
from minitoolstream.domain.subject import pack_id_of, upload_id_of
from minitoolstream.services.core import Core
from minitoolstream.services.progress import Progress, silent

_AT_ONCE = 5000
_LISTED_AT_ONCE = 10_000
_ASKED_AT_ONCE = 16


@dataclass(slots=True)
class Comparison:
    """`orphans` in the order in which they were made. `missing`: sequence and object of extents without payload."""

    orphans: list[str] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)


async def compare_bucket(core: Core, progress: Progress = silent) -> Comparison:
    """Objects are listed before the rows are read, so one that is committed meanwhile is no orphan."""
    with _tables() as tables:
        listed = 0
        for prefix in (PAYLOAD_PREFIX, PACK_PREFIX):
            after = ""
            while page := await core.payloads.list_after(prefix, after, _LISTED_AT_ONCE):
                tables.executemany("INSERT OR IGNORE INTO object VALUES (?, ?)", _named(info.name for info in page))
                after = page[-1].name
                listed += len(page)
                progress(f"listing the bucket: {listed} objects")
        sequence, rows = 0, 0
        while extents := await core.journal.objects_after(sequence, _AT_ONCE):
            checked = [(number, name) for number, name, unverified in extents if not unverified]
            tables.executemany("INSERT INTO row VALUES (?, ?)", checked)
            sequence = extents[-1][0]
            rows += len(extents)
            progress(f"comparing: {rows} rows")
        unknown = "SELECT name FROM object WHERE name NOT IN (SELECT name FROM row) ORDER BY made, name"
        orphans = [name for (name,) in tables.execute(unknown)]
        lost = "SELECT sequence, name FROM row WHERE name NOT IN (SELECT name FROM object) ORDER BY sequence"
        missing = tables.execute(lost).fetchall()
    return Comparison(await _unknown(core, orphans), await _gone(core, missing))


def _named(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Ours, with the id that says when each was made."""
    for name in names:
        made = pack_id_of(name) or upload_id_of(name)
        if made is not None:
            yield name, made


async def _gone(core: Core, missing: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Payloads of an installation that was imported have names of their own, which were not listed: they are asked for
    one by one."""
    at_once = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def is_gone(name: str) -> bool:
        if name.startswith((PAYLOAD_PREFIX, PACK_PREFIX)):
            return True
        async with at_once:
            return await core.payloads.find(name) is None

    gone = await asyncio.gather(*(is_gone(name) for _, name in missing))
    return [row for row, is_lost in zip(missing, gone, strict=True) if is_lost]


async def _unknown(core: Core, names: list[str]) -> list[str]:
    """Those that no upload, no pack and no trash row knows either."""
    found: list[str] = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        known = await core.restores.known_objects(some)
        found += [name for name, is_known in zip(some, known, strict=True) if not is_known]
    return found


@contextmanager
def _tables() -> Iterator[sqlite3.Connection]:
    """In a temporary file of SQLite's own: memory stays flat, however many there are."""
    connection = sqlite3.connect("")
    try:
        connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE object (name TEXT PRIMARY KEY, made TEXT) WITHOUT ROWID;"
            "CREATE TABLE row (sequence INTEGER PRIMARY KEY, name TEXT); CREATE INDEX row_name ON row (name);"
        )
        yield connection
    finally:
        connection.close()
