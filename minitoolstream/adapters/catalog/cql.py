"""The catalog in Cassandra or ScyllaDB, by what both have: tables, batches, conditional writes, counters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from minitoolstream.adapters.catalog.cql_migrate import applied_versions, migrate
from minitoolstream.adapters.catalog.cql_session import AT_ONCE, CqlPlace, CqlSession
from minitoolstream.adapters.catalog.migrations import Migration
from minitoolstream.adapters.catalog.values import from_cql
from minitoolstream.domain.catalog_tables import Table
from minitoolstream.domain.limits import KIB
from minitoolstream.ports.catalog import Change, Key, Put, Row

T = TypeVar("T")
_Shape = tuple[str | tuple[str, ...], ...]
"""What statements of one text have in common: their kind first."""
_IN_A_BATCH = 50
_IN_A_PARTITION = 100
_BATCH_BYTES = 3 * KIB
"""Of several partitions in one batch: servers warn of 5 KiB with what they add, and refuse 50."""
_PARTITIONS_IN_A_BATCH = 8
"""A server writes them one after the other, and waits for its log each time: more are sent side by side."""
_KEYS_AT_ONCE = 32
"""Rows that one statement asks for: each costs less than a statement of its own, and few nodes are waited for. In each
partition all of them are looked for."""


class CqlCatalog:
    def __init__(self, place: CqlPlace, migrations: Callable[[], Sequence[Migration]]) -> None:
        self._session = CqlSession(place)
        self._keyspace = place.keyspace
        self._migrations = migrations
        self._texts: dict[_Shape, str] = {}

    async def get(self, table: Table, key: Key) -> Row | None:
        rows = (await self._session.ask(self.get_text(table), key)).rows
        return from_cql(table, rows)[0] if rows else None

    def get_text(self, table: Table) -> str:
        return self._text(("get", table.name), lambda: f"{self._select(table)} WHERE {_equal(table.key)}")

    async def get_many(self, table: Table, keys: Sequence[Key]) -> list[Row | None]:
        if len(table.key) > 2:  # every column's values would be combined with those of all others
            return await _gather(self.get(table, key) for key in keys)
        given = [keys[at : at + _KEYS_AT_ONCE] for at in range(0, len(keys), _KEYS_AT_ONCE)]
        found = {}
        for rows in await _gather(self._get_some(table, some) for some in given):
            found.update({tuple(row[name] for name in table.key): row for row in rows})
        return [found.get(tuple(key)) for key in keys]

    async def _get_some(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        if len(keys) == 1:
            row = await self.get(table, keys[0])
            return [row] if row is not None else []
        text = f"{self._select(table)} WHERE {' AND '.join(f'{name} IN ?' for name in table.key)}"
        values = [list({key[at] for key in keys}) for at in range(len(table.key))]
        return from_cql(table, (await self._session.ask(text, values)).rows)

    async def page(
        self, table: Table, partition: Key, limit: int, *, after: Key = (), until: Key = (), descending: bool = False
    ) -> list[Row]:
        text, given = f"{self._select(table)} WHERE {_equal(table.partition)}", [*partition]
        for bound, past in ((after, "<" if descending else ">"), (until, ">=" if descending else "<=")):
            if bound:
                names = table.clustering[: len(bound)]
                text += f" AND ({', '.join(names)}) {past} ({', '.join('?' * len(bound))})"
                given += bound
        if descending:
            text += f" ORDER BY {', '.join(f'{name} DESC' for name in table.clustering)}"
        answer = await self._session.ask(f"{text} LIMIT ?", [*given, limit], page=limit + 1)
        return from_cql(table, answer.rows)

    async def walk(self, table: Table, cursor: str | None, limit: int) -> tuple[list[Row], str | None]:
        place = bytes.fromhex(cursor) if cursor else None
        answer = await self._session.ask(self._select(table), page=limit, cursor=place)
        return from_cql(table, answer.rows), answer.cursor.hex() if answer.cursor else None

    async def write(self, changes: Sequence[Change]) -> None:
        # Of more than a server takes in one, the first are written before the last.
        for at in range(0, len(changes), _IN_A_BATCH):
            await self._send(await self._bound(changes[at : at + _IN_A_BATCH]), logged=True)

    async def write_each(self, changes: Sequence[Change]) -> None:
        """Batches without a log: what a statement costs beyond its row is paid once, and rows of one partition are
        one change for the server."""
        partitions: dict[bytes, list[Any]] = {}
        for bound in await self._bound(changes):
            partitions.setdefault(bound.routing_key, []).append(bound)
        batches: list[list[Any]] = []
        packed: list[Any] = []
        room = places = 0
        for some in partitions.values():
            size = sum(sum(map(len, filter(None, bound.values))) for bound in some)
            if size > _BATCH_BYTES:  # of one partition it may be more
                batches += [some[at : at + _IN_A_PARTITION] for at in range(0, len(some), _IN_A_PARTITION)]
                continue
            if size > room or not places:
                packed, room, places = [], _BATCH_BYTES, _PARTITIONS_IN_A_BATCH
                batches.append(packed)
            packed += some
            room, places = room - size, places - 1
        await _gather(self._send(batch, logged=False) for batch in batches)

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        for step in steps:
            await self.write_each(step)

    async def _bound(self, changes: Sequence[Change]) -> list[Any]:
        statements = [self._statement(change) for change in changes]
        return [(await self._session.prepare(text)).bind(given) for text, given in statements]

    async def _send(self, bound: Sequence[Any], *, logged: bool) -> None:
        if len(bound) == 1:
            await self._session.send(bound[0])
            return
        from cassandra.query import BatchStatement, BatchType

        batch = BatchStatement(BatchType.LOGGED if logged else BatchType.UNLOGGED)
        for one in bound:
            batch.add(one)
        batch.is_idempotent = True
        await self._session.send(batch)

    async def put_new(self, table: Table, row: Mapping[str, Any], life: int | None = None) -> Row | None:
        text, given = self._insert(table, row, " IF NOT EXISTS", life)
        rows = (await self._session.ask(text, given, conditional=True)).rows
        if rows[0]["[applied]"]:
            return None
        return from_cql(table, [[rows[0].get(name) for name in table.types]])[0]

    async def put_if(self, table: Table, row: Mapping[str, Any], expected: Mapping[str, Any]) -> Row | None:
        changed = [name for name in row if name not in table.key]
        text = f"UPDATE {self._name(table)} SET {', '.join(f'{name} = ?' for name in changed)}"  # noqa: S608 # nosec B608
        text += f" WHERE {_equal(table.key)} IF {_equal(expected)}"
        key = tuple(row[name] for name in table.key)
        given = [*(row[name] for name in changed), *key, *expected.values()]
        rows = (await self._session.ask(text, given, conditional=True)).rows
        return None if rows[0]["[applied]"] else await self.get(table, key) or {}

    async def delete_if(self, table: Table, key: Key, expected: Mapping[str, Any]) -> bool:
        text = f"DELETE FROM {self._name(table)} WHERE {_equal(table.key)} IF {_equal(expected)}"  # noqa: S608 # nosec B608
        rows = (await self._session.ask(text, [*key, *expected.values()], conditional=True)).rows
        return bool(rows[0]["[applied]"])

    async def add(self, table: Table, key: Key, amounts: Mapping[str, int]) -> None:
        sums = ", ".join(f"{name} = {name} + ?" for name in amounts)
        text = f"UPDATE {self._name(table)} SET {sums} WHERE {_equal(table.key)}"  # noqa: S608 # nosec B608
        await self._session.ask(text, [*amounts.values(), *key], idempotent=False)

    async def migrate(self) -> list[str]:
        return await migrate(self._session, self._migrations())

    async def versions(self) -> tuple[list[str], list[str]]:
        applied = await applied_versions(self._session)
        return applied, [one.version for one in self._migrations() if one.version not in applied]

    async def check(self) -> None:
        await self._session.run("SELECT release_version FROM system.local")

    async def close(self) -> None:
        await self._session.close()

    def _statement(self, change: Change) -> tuple[str, list[Any]]:
        table = change.table
        if not isinstance(change, Put):
            return self._text(("delete", table.name), lambda: self._delete(table)), list(change.key)
        row, plus, minus = change.row, change.plus or {}, change.minus or {}
        if not plus and not minus:
            return self._insert(table, row, "", change.life)
        columns = [name for name in row if name not in table.key]
        shape = ("update", table.name, tuple(columns), tuple(plus), tuple(minus))
        text = self._text(shape, lambda: self._update(table, columns, plus, minus))
        values = (*(row[name] for name in columns), *plus.values(), *minus.values())
        return text, [*values, *(row[name] for name in table.key)]

    def _text(self, shape: _Shape, make: Callable[[], str]) -> str:
        """Made once: there are few shapes, and rows of one come by thousands."""
        found = self._texts.get(shape)
        if found is None:
            found = self._texts[shape] = make()
        return found

    def _insert(self, table: Table, row: Mapping[str, Any], condition: str, life: int | None) -> tuple[str, list[Any]]:
        ending = f"{condition} USING TTL ?" if life is not None else condition
        text = self._text(("insert", table.name, tuple(row), ending), lambda: f"{self._into(table, row)}{ending}")
        given = list(row.values())
        return text, [*given, life] if life is not None else given

    def _into(self, table: Table, row: Iterable[str]) -> str:
        names = tuple(row)
        return f"INSERT INTO {self._name(table)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 # nosec B608

    def _update(self, table: Table, columns: Iterable[str], plus: Iterable[str], minus: Iterable[str]) -> str:
        """Sets change element by element: two that change different ones do not undo each other."""
        parts = [f"{name} = ?" for name in columns]
        parts += [f"{name} = {name} + ?" for name in plus]
        parts += [f"{name} = {name} - ?" for name in minus]
        return f"UPDATE {self._name(table)} SET {', '.join(parts)} WHERE {_equal(table.key)}"  # noqa: S608 # nosec B608

    def _delete(self, table: Table) -> str:
        return f"DELETE FROM {self._name(table)} WHERE {_equal(table.key)}"  # noqa: S608 # nosec B608

    def _select(self, table: Table) -> str:
        return f"SELECT {', '.join(table.types)} FROM {self._name(table)}"  # noqa: S608 # nosec B608

    def _name(self, table: Table) -> str:
        return f"{self._keyspace}.{table.name}"


def _equal(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = ?" for name in names)


async def _gather(calls: Iterable[Awaitable[T]]) -> list[T]:
    """All of them, some at a time; also when one fails, none is under way any more."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with at_once:
            return await call

    found: list[T] = []
    for ended in await asyncio.gather(*map(one, calls), return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
        found.append(ended)
    return found
