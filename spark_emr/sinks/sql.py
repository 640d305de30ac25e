"""Rows into a table of MySQL or MariaDB, idempotent: a row that is there already is set to the same values again.

    upsert(frame, lambda: pymysql.connect(host="db", user="writer", password=secret()), "shop.orders", ["sequence"])

`connect` runs in the tasks and gives a DB-API connection; let it find its password there, in the environment or a
file. Each task writes in one transaction, so a task that is repeated, or a batch that comes again after a crash, ends
with the same rows. The table needs a primary or unique key over the key columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from minitoolstream.domain.errors import bad_request

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_AT_ONCE = 1000
_NO_VALUES = frozenset({"map", "array", "struct"})
Connect = Callable[[], Any]


def upsert(frame: Any, connect: Connect, table: str, key: Sequence[str]) -> int:
    """Insert the rows of a DataFrame, or set them where their key is there; how many."""
    columns = list(frame.columns)
    for column in frame.schema.fields:
        if column.dataType.typeName() in _NO_VALUES:
            what = f"the column {column.name} is of type {column.dataType.simpleString()}, which no table takes"
            raise bad_request(f"{what}: write to_json({column.name}) instead", field=column.name)
    statement = upsert_statement(table, columns, key)
    # An accumulator would count a repeated task twice.
    written = frame.rdd.mapPartitions(lambda rows: iter([write_rows(connect, statement, map(tuple, rows))]))
    return int(sum(written.collect()))


def upsert_statement(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Names are checked, since a placeholder cannot stand for one."""
    for name in (*table.split("."), *columns, *key):
        if not _NAME.match(name):
            raise bad_request(f"{name!r} is not a name of a table or column: letters, digits and _")
    if not key or not set(key) <= set(columns):
        raise bad_request("the key must be some of the columns")
    target = ".".join(f"`{part}`" for part in table.split("."))
    listed = ", ".join(f"`{name}`" for name in columns)
    # With nothing but the key, a row that is there stays as it is.
    changed = [name for name in columns if name not in key] or [key[0]]
    changes = ", ".join(f"`{name}` = VALUES(`{name}`)" for name in changed)
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {target} ({listed}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {changes}"  # noqa: S608  # nosec B608


def write_rows(connect: Connect, statement: str, rows: Iterable[Sequence[Any]]) -> int:
    """All of them in one transaction; how many."""
    source, count = iter(rows), 0
    connection = connect()
    try:
        with connection.cursor() as cursor:
            while some := list(islice(source, _AT_ONCE)):
                cursor.executemany(statement, some)
                count += len(some)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()
    return count
