"""The catalog in SQLite: the embedded engine, for one machine. The same tables, keys and promises as with CQL."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from minitoolstream.adapters.catalog.cql_schema import AddColumn, CreateTable, parse
from minitoolstream.adapters.catalog.migrations import Migration
from minitoolstream.adapters.catalog.values import from_sql, sql_type, to_sql
from minitoolstream.adapters.sql.database import Cursor, Database
from minitoolstream.domain.catalog_tables import Table
from minitoolstream.ports.catalog import Change, Key, Put, Row

T = TypeVar("T")
_ENDS = "ends_at"
"""A column of ours in each table: when the row goes by itself, in unix milliseconds."""
_TIDY_EVERY = 1000
_NONE: frozenset[str] = frozenset()


class SqliteCatalog:
    """Names of tables and columns come from the schema, all that callers give goes in as a parameter."""

    def __init__(self, database: Database, migrations: Callable[[], Sequence[Migration]]) -> None:
        self._database = database
        self._migrations = migrations
        self._prepared = False
        self._written = 0

    async def get(self, table: Table, key: Key) -> Row | None:
        return (await self.get_many(table, [key]))[0]

    async def get_many(self, table: Table, keys: Sequence[Key]) -> list[Row | None]:
        return await self._run(lambda cursor: [_get(cursor, table, key) for key in keys])

    async def page(
        self, table: Table, partition: Key, limit: int, *, after: Key = (), until: Key = (), descending: bool = False
    ) -> list[Row]:
        where, given = _equal(table, table.partition, partition)
        for bound, past in ((after, "<" if descending else ">"), (until, ">=" if descending else "<=")):
            if bound:
                names = table.clustering[: len(bound)]
                where += f" AND ({', '.join(names)}) {past} ({', '.join(['%s'] * len(bound))})"
                given += [to_sql(table.types[name], value) for name, value in zip(names, bound, strict=True)]
        order = ", ".join(f"{name} DESC" if descending else name for name in table.clustering)
        rest = f"WHERE {where} AND {_LIVES} ORDER BY {order or 1} LIMIT %s"
        return await self._run(lambda cursor: _select(cursor, table, rest, [*given, _now(), limit]))

    async def walk(self, table: Table, cursor: str | None, limit: int) -> tuple[list[Row], str | None]:
        where, given = _LIVES, [_now()]
        if cursor is not None:
            where += f" AND ({', '.join(table.key)}) > ({', '.join(['%s'] * len(table.key))})"
            given += _key_of(cursor)
        rest = f"WHERE {where} ORDER BY {', '.join(table.key)} LIMIT %s"
        rows = await self._run(lambda sql: _select(sql, table, rest, [*given, limit]))
        more = len(rows) == limit
        return rows, _cursor_of(table, rows[-1]) if more else None

    async def write(self, changes: Sequence[Change]) -> None:
        def change(cursor: Cursor) -> None:
            for one in changes:
                if isinstance(one, Put):
                    _put(cursor, one)
                else:
                    where, given = _equal(one.table, one.table.key, one.key)
                    cursor.execute(f"DELETE FROM {one.table.name} WHERE {where}", given)  # noqa: S608 # nosec B608

        if changes:
            await self._run(change)
            await self._tidy(changes)

    async def write_each(self, changes: Sequence[Change]) -> None:
        await self.write(changes)

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        await self.write([change for step in steps for change in step])  # a commit costs more than a row

    async def put_new(self, table: Table, row: Mapping[str, Any], life: int | None = None) -> Row | None:
        def put(cursor: Cursor) -> Row | None:
            there = _get(cursor, table, tuple(row[name] for name in table.key))
            if there is None:
                _put(cursor, Put(table, row, life))
            return there

        return await self._run(put)

    async def put_if(self, table: Table, row: Mapping[str, Any], expected: Mapping[str, Any]) -> Row | None:
        def put(cursor: Cursor) -> Row | None:
            there = _get(cursor, table, tuple(row[name] for name in table.key))
            if there is None:
                return {}
            if not _holds(there, expected):
                return there
            _put(cursor, Put(table, row))
            return None

        return await self._run(put)

    async def delete_if(self, table: Table, key: Key, expected: Mapping[str, Any]) -> bool:
        def delete(cursor: Cursor) -> bool:
            there = _get(cursor, table, key)
            if there is None or not _holds(there, expected):
                return False
            where, given = _equal(table, table.key, key)
            cursor.execute(f"DELETE FROM {table.name} WHERE {where}", given)  # noqa: S608 # nosec B608
            return True

        return await self._run(delete)

    async def add(self, table: Table, key: Key, amounts: Mapping[str, int]) -> None:
        names = [*table.key, *amounts]
        sums = ", ".join(f"{name} = coalesce({name}, 0) + excluded.{name}" for name in amounts)
        statement = (
            f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"  # noqa: S608 # nosec B608
            f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {sums}"
        )
        given = [*(to_sql(table.types[name], value) for name, value in zip(table.key, key, strict=True))]
        await self._run(lambda cursor: cursor.execute(statement, [*given, *amounts.values()]))

    async def migrate(self) -> list[str]:
        return await self._database.transaction(self._migrate)

    async def versions(self) -> tuple[list[str], list[str]]:
        def read(cursor: Cursor) -> list[str]:
            _make_record(cursor)
            cursor.execute("SELECT version FROM schema_versions ORDER BY version")
            return [row[0] for row in cursor.fetchall()]

        applied = await self._database.transaction(read)
        return applied, [one.version for one in self._migrations() if one.version not in applied]

    async def check(self) -> None:
        await self._run(lambda cursor: cursor.execute("SELECT 1"))

    async def close(self) -> None:
        await self._database.close()

    def _migrate(self, cursor: Cursor) -> list[str]:
        _make_record(cursor)
        cursor.execute("SELECT version FROM schema_versions")
        applied = {row[0] for row in cursor.fetchall()}
        fresh = [one for one in self._migrations() if one.version not in applied]
        for migration in fresh:
            for statement in migration.statements:
                made = parse(statement)
                if isinstance(made, CreateTable):
                    columns = [f"{name} {sql_type(kind)}" for name, kind in made.columns]
                    key = ", ".join(made.partition + made.clustering)
                    columns += [f"{_ENDS} INTEGER", f"PRIMARY KEY ({key})"]
                    cursor.execute(f"CREATE TABLE IF NOT EXISTS {made.name} ({', '.join(columns)}) WITHOUT ROWID")
                elif isinstance(made, AddColumn):
                    cursor.execute(f"ALTER TABLE {made.table} ADD COLUMN {made.column} {sql_type(made.kind)}")
            cursor.execute("INSERT INTO schema_versions VALUES (%s, %s)", [migration.version, _now()])
        return [one.version for one in fresh]

    async def _run(self, work: Callable[[Cursor], T]) -> T:
        if not self._prepared:
            await self.migrate()
            self._prepared = True
        return await self._database.transaction(work)

    async def _tidy(self, changes: Sequence[Change]) -> None:
        """Now and then, what has had its time goes from the tables that were written to."""
        before, self._written = self._written, self._written + len(changes)
        if before // _TIDY_EVERY == self._written // _TIDY_EVERY:
            return
        names = {one.table.name for one in changes if isinstance(one, Put) and (one.life or one.table.life)}

        def tidy(cursor: Cursor) -> None:
            for name in names:
                cursor.execute(f"DELETE FROM {name} WHERE {_ENDS} <= %s", [_now()])  # noqa: S608 # nosec B608

        await self._run(tidy)


_LIVES = f"({_ENDS} IS NULL OR {_ENDS} > %s)"


def _now() -> int:
    return time.time_ns() // 1_000_000


def _make_record(cursor: Cursor) -> None:
    cursor.execute("CREATE TABLE IF NOT EXISTS schema_versions (version TEXT PRIMARY KEY, applied_at INTEGER)")


def _equal(table: Table, names: Sequence[str], values: Key) -> tuple[str, list[Any]]:
    given = [to_sql(table.types[name], value) for name, value in zip(names, values, strict=True)]
    return " AND ".join(f"{name} = %s" for name in names), given


def _get(cursor: Cursor, table: Table, key: Key) -> Row | None:
    where, given = _equal(table, table.key, key)
    found = _select(cursor, table, f"WHERE {where} AND {_LIVES}", [*given, _now()])
    return found[0] if found else None


def _select(cursor: Cursor, table: Table, rest: str, given: Sequence[Any]) -> list[Row]:
    names = ", ".join(table.types)
    cursor.execute(f"SELECT {names} FROM {table.name} {rest}", given)  # noqa: S608 # nosec B608
    return [
        {name: from_sql(kind, value) for (name, kind), value in zip(table.columns, row, strict=True)}
        for row in cursor.fetchall()
    ]


def _sets(cursor: Cursor, table: Table, key: Key, names: Sequence[str]) -> dict[str, frozenset[str]]:
    where, given = _equal(table, table.key, key)
    cursor.execute(f"SELECT {', '.join(names)} FROM {table.name} WHERE {where} AND {_LIVES}", [*given, _now()])  # noqa: S608 # nosec B608
    found = [*cursor.fetchall(), [None] * len(names)]
    return {name: from_sql(table.types[name], value) for name, value in zip(names, found[0], strict=True)}


def _put(cursor: Cursor, put: Put) -> None:
    table, row = put.table, dict(put.row)
    if put.plus or put.minus:
        plus, minus = put.plus or {}, put.minus or {}
        there = _sets(cursor, table, tuple(row[name] for name in table.key), sorted({*plus, *minus}))
        row |= {name: (some - minus.get(name, _NONE)) | plus.get(name, _NONE) for name, some in there.items()}
    life = table.life if put.life is None else put.life
    given = [to_sql(table.types[name], value) for name, value in row.items()]
    given.append(_now() + life * 1000 if life else None)
    names = [*row, _ENDS]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in table.key)
    cursor.execute(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"  # noqa: S608 # nosec B608
        f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changed}",
        given,
    )


def _holds(row: Row, expected: Mapping[str, Any]) -> bool:
    return all(row[name] == value for name, value in expected.items())


def _cursor_of(table: Table, row: Row) -> str:
    key = [to_sql(table.types[name], row[name]) for name in table.key]
    return json.dumps([[base64.b64encode(v).decode()] if isinstance(v, bytes) else v for v in key])


def _key_of(cursor: str) -> list[Any]:
    return [base64.b64decode(value[0]) if isinstance(value, list) else value for value in json.loads(cursor)]
