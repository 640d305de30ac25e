"""Versions of the schema, applied one after the other by one runner at a time; what was done is not done again."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from minitoolstream.adapters.catalog.cql_schema import AddColumn, parse
from minitoolstream.adapters.catalog.cql_session import CqlSession
from minitoolstream.adapters.catalog.migrations import Migration
from minitoolstream.domain.errors import MtsError, unavailable

_LOCK = "lock"
_LOCK_SECONDS = 120
_WAIT_SECONDS = 180.0
_LOOK_AGAIN = 0.2


async def migrate(session: CqlSession, migrations: Sequence[Migration]) -> list[str]:
    """The versions that this call applied."""
    if not set(await applied_versions(session)).issuperset(one.version for one in migrations):
        await _make_record(session, migrations[0])
        holder = secrets.token_hex(8)
        await _lock(session, holder)
        try:
            return await _apply(session, migrations)
        finally:
            await _unlock(session, holder)
    return []


async def applied_versions(session: CqlSession) -> list[str]:
    """None where there is no keyspace yet."""
    found = await session.run(
        "SELECT table_name FROM system_schema.tables"  # noqa: S608 # nosec B608
        f" WHERE keyspace_name = '{session.place.keyspace}' AND table_name = 'schema_versions'"
    )
    if not found:
        return []
    rows = await session.run(f"SELECT name, applied_at FROM {_record(session)}")  # noqa: S608 # nosec B608
    return sorted(name for name, applied_at in rows if name != _LOCK and applied_at is not None)


def _record(session: CqlSession) -> str:
    return f"{session.place.keyspace}.schema_versions"


async def _make_record(session: CqlSession, first: Migration) -> None:
    """The keyspace, and the table that says what is done; both may be there."""
    for statement in first.statements:
        if parse(statement) is None:
            await session.run(_filled(session, statement))
    columns = "name text PRIMARY KEY, holder text, applied_at timestamp"
    await session.run(f"CREATE TABLE IF NOT EXISTS {_record(session)} ({columns})")


async def _lock(session: CqlSession, holder: str) -> None:
    """A runner that dies leaves it for two minutes."""
    text = f"INSERT INTO {_record(session)} (name, holder) VALUES (?, ?) IF NOT EXISTS USING TTL {_LOCK_SECONDS}"  # noqa: S608 # nosec B608
    deadline = time.monotonic() + _WAIT_SECONDS
    while not (await session.ask(text, [_LOCK, holder], conditional=True)).rows[0]["[applied]"]:
        if time.monotonic() > deadline:
            raise unavailable("another migration of the catalog is running")
        await asyncio.sleep(_LOOK_AGAIN)


async def _unlock(session: CqlSession, holder: str) -> None:
    text = f"DELETE FROM {_record(session)} WHERE name = ? IF holder = ?"  # noqa: S608 # nosec B608
    with contextlib.suppress(MtsError):  # it ends by itself
        await session.ask(text, [_LOCK, holder], conditional=True)


async def _apply(session: CqlSession, migrations: Sequence[Migration]) -> list[str]:
    done = set(await applied_versions(session))
    fresh = [one for one in migrations if one.version not in done]
    text = f"INSERT INTO {_record(session)} (name, applied_at) VALUES (?, ?)"  # noqa: S608 # nosec B608
    for migration in fresh:
        for statement in migration.statements:
            if not await _is_there(session, statement):
                await session.run(_filled(session, statement))
        await session.ask(text, [migration.version, datetime.now(UTC)])
    return [one.version for one in fresh]


async def _is_there(session: CqlSession, statement: str) -> bool:
    """A column that a runner added before it died: adding it again is an error."""
    made = parse(statement)
    if not isinstance(made, AddColumn):
        return False
    found = await session.run(
        "SELECT column_name FROM system_schema.columns"  # noqa: S608 # nosec B608
        f" WHERE keyspace_name = '{session.place.keyspace}' AND table_name = '{made.table}'"
        f" AND column_name = '{made.column}'"
    )
    return bool(found)


def _filled(session: CqlSession, statement: str) -> str:
    place = session.place
    return statement.replace("{keyspace}", place.keyspace).replace("{replication}", place.replication)
