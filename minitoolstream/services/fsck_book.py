"""What a check has seen, in an SQLite file: it may be more than fits into memory, and a check that was interrupted goes
on from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minitoolstream.ports import RowFacts, UploadFacts

_SCHEMA = """
CREATE TABLE IF NOT EXISTS note (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS need (
    key INTEGER PRIMARY KEY, object TEXT, first INTEGER, length INTEGER, missing INTEGER);
CREATE INDEX IF NOT EXISTS need_object ON need (object, first);
CREATE TABLE IF NOT EXISTS upload (id TEXT PRIMARY KEY, state TEXT, object TEXT, in_pack INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS upload_object ON upload (object);
CREATE TABLE IF NOT EXISTS object (name TEXT PRIMARY KEY, refs INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trash (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (name TEXT PRIMARY KEY, size INTEGER, kind TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checked (object TEXT PRIMARY KEY, size INTEGER, without INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS damaged (body BLOB);
"""
_CACHE_KIB = 16 * 1024


class Book:
    """Every method is quick, or a walk that gives its findings one by one."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path)
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Killed by power loss, it may be damaged: then the check begins anew. A killed process damages nothing.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA temp_store = FILE")
        self._db.executescript(_SCHEMA)

    # -- how far the check is

    def note(self, key: str, value: str | int) -> None:
        self._db.execute("REPLACE INTO note VALUES (?, ?)", (key, value))
        self._db.commit()

    def noted(self, key: str) -> Any:
        found = self._db.execute("SELECT value FROM note WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    # -- what was seen

    # Each answers the key to go on behind.

    def add_rows(self, rows: Sequence[RowFacts]) -> int:
        """What was published without a ticket has a payload that is not ours to look for."""
        values = [(row.key, row.object_name, row.first, row.length, row.missing) for row in rows if not row.unverified]
        self._db.executemany("REPLACE INTO need VALUES (?, ?, ?, ?, ?)", values)
        return rows[-1].key

    def add_uploads(self, uploads: Sequence[UploadFacts]) -> str:
        values = [(one.id, one.state, one.object_name, one.in_pack) for one in uploads]
        self._db.executemany("REPLACE INTO upload VALUES (?, ?, ?, ?)", values)
        return uploads[-1].id

    def add_objects(self, objects: Sequence[tuple[str, int]]) -> str:
        self._db.executemany("REPLACE INTO object VALUES (?, ?)", objects)
        return objects[-1][0]

    def add_trash(self, trash: Sequence[tuple[str, int]]) -> str:
        self._db.executemany("REPLACE INTO trash VALUES (?)", [(name,) for name, _ in trash])
        return trash[-1][0]

    def add_seen(self, seen: Sequence[tuple[str, int, str]]) -> str:
        self._db.executemany("REPLACE INTO seen VALUES (?, ?, ?)", seen)
        return seen[-1][0]

    def add_checked(self, name: str, size: int, without: int, damaged: Sequence[bytes]) -> None:
        """The payloads of an object were read; what was wrong, as the caller writes it."""
        self._db.execute("REPLACE INTO checked VALUES (?, ?, ?)", (name, size, without))
        self._db.executemany("INSERT INTO damaged VALUES (?)", [(body,) for body in damaged])
        self._db.commit()

    def checked(self) -> tuple[int, int, int]:
        """Objects, bytes, and rows without checksum."""
        query = "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(without), 0) FROM checked"
        objects, size, without = self._db.execute(query).fetchone()
        return objects, size, without

    def damaged(self) -> Iterator[bytes]:
        return (body for (body,) in self._db.execute("SELECT body FROM damaged"))

    # -- what follows from it

    def orphans(self) -> Iterator[str]:
        """Objects of ours that nothing seems to point at."""
        return self._names(
            """SELECT name FROM seen WHERE kind IN ('payload', 'pack', 'report')
               AND NOT EXISTS (SELECT 1 FROM need WHERE need.object = seen.name)
               AND NOT EXISTS (SELECT 1 FROM upload WHERE upload.object = seen.name)
               AND NOT EXISTS (SELECT 1 FROM trash WHERE trash.name = seen.name) ORDER BY name"""
        )

    def without_payload(self) -> Iterator[int]:
        """Keys of rows that are not known to be without payload, and seem to be; or whose object is of another size."""
        return self._keys(
            """SELECT key FROM need LEFT JOIN seen ON seen.name = object WHERE NOT missing
               AND (seen.name IS NULL OR seen.size < coalesce(first, 0) + length
                 OR (first IS NULL AND seen.size <> length)) ORDER BY key"""
        )

    def with_payload_again(self) -> Iterator[int]:
        """Keys of rows that are known to be without payload, and seem to have it."""
        return self._keys(
            """SELECT key FROM need JOIN seen ON seen.name = object WHERE missing
               AND seen.size >= coalesce(first, 0) + length ORDER BY key"""
        )

    def waiting_without_payload(self) -> Iterator[tuple[str, str]]:
        """Uploads that were stored and wait to be committed, and seem to have lost their object, with its name."""
        return iter(
            self._db.execute(
                """SELECT id, object FROM upload WHERE state = 'stored'
                   AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.name = upload.object) ORDER BY id"""
            )
        )

    def wrong_refs(self) -> Iterator[str]:
        """Objects whose references seem to be counted wrong."""
        return self._names(
            """SELECT name FROM (
                 SELECT name, refs, (SELECT count(*) FROM need WHERE need.object = name) + (SELECT count(*)
                   FROM upload WHERE upload.object = name AND in_pack AND state = 'stored') AS pointing FROM object)
               WHERE refs <> pointing
               UNION
               SELECT object FROM need WHERE NOT EXISTS (SELECT 1 FROM object WHERE object.name = need.object)
                 GROUP BY object HAVING count(*) > 1 ORDER BY 1"""
        )

    def doomed(self) -> Iterator[str]:
        """Objects that rows need, and that seem to be in the trash. What is known to be missing needs none."""
        return self._names(
            """SELECT DISTINCT object FROM need JOIN trash ON trash.name = object WHERE NOT missing ORDER BY object"""
        )

    def needed(self) -> Iterator[tuple[str, int, int, int]]:
        """Objects that rows need: name, size, bytes that are needed, and where the first of those stands."""
        rows = self._db.execute(
            """SELECT object, seen.size, first, length FROM need JOIN seen ON seen.name = need.object
               ORDER BY object, first"""
        )
        name, size, used, start, end = "", 0, 0, 0, 0
        for object_name, object_size, first, length in rows:
            begin = first or 0
            if object_name != name:
                if name:
                    yield name, size, used, start
                name, size, used, start, end = object_name, object_size, 0, begin, begin
            used += max(begin + length - max(begin, end), 0)
            end = max(end, begin + length)
        if name:
            yield name, size, used, start

    def amounts(self) -> dict[str, tuple[int, int]]:
        """Objects and bytes of what no row needs, by what it is."""
        rows = self._db.execute(
            """SELECT CASE WHEN EXISTS (SELECT 1 FROM trash WHERE trash.name = seen.name) THEN 'trash'
                           WHEN kind IN ('foreign', 'record', 'report', 'system') THEN kind ELSE 'waiting' END AS place,
                 count(*), sum(size) FROM seen
               WHERE NOT EXISTS (SELECT 1 FROM need WHERE need.object = seen.name) GROUP BY place"""
        )
        return {place: (count, size) for place, count, size in rows}

    def system_names(self, prefix: str) -> Iterator[str]:
        """Objects of the system's own below a prefix."""
        query = "SELECT name FROM seen WHERE name >= ? AND name < ? ORDER BY name"
        return self._names(query, (prefix, prefix + "\x7f"))

    def to_check(self, sample: int | None) -> Iterator[str]:
        """Objects whose payloads are to be read: some, or all that were not read yet."""
        if sample is None:
            return self._names(
                """SELECT DISTINCT object FROM need WHERE object IN (SELECT name FROM seen)
                   AND object NOT IN (SELECT object FROM checked) ORDER BY object"""
            )
        return self._names(
            """SELECT object FROM (SELECT DISTINCT object FROM need WHERE object IN (SELECT name FROM seen))
               ORDER BY random() LIMIT ?""",
            (sample,),
        )

    def keys_of(self, name: str) -> list[int]:
        return list(self._keys("SELECT key FROM need WHERE object = ? ORDER BY key", (name,)))

    def close(self) -> None:
        self._db.close()

    def delete(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def _names(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[str]:
        return (name for (name,) in self._db.execute(query, values))

    def _keys(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[int]:
        return (key for (key,) in self._db.execute(query, values))
