"""The pipeline's rows in a shard's database: `pipeline_result`, as `db/shard_ddl.sql` makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from minitoolstream.adapters.sql.database import Cursor, Session

_AT_ONCE = 500
_BYTES = 1 << 20
"""Characters of a statement, about: servers refuse those above their max_allowed_packet."""


class SqlShardRows:
    def __init__(self, session: Session, read_ddl: Callable[[], str]) -> None:
        self._session = session
        self._read_ddl = read_ddl
        self._prepared = False

    def replace(self, filename: str, shard: int, rows: Iterable[tuple[str, str]]) -> None:
        if not self._prepared:
            self._session.transaction(lambda cursor: cursor.execute(self._read_ddl()))
            self._prepared = True

        def write(cursor: Cursor) -> None:
            cursor.execute("DELETE FROM pipeline_result WHERE filename = %s AND shard = %s", [filename, shard])
            for some in _slices(rows):
                places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(some))
                given = [value for number, row in some for value in (filename, shard, number, row[0], row[1])]
                cursor.execute(
                    "INSERT INTO pipeline_result (filename, shard, item, item_key, value)"  # noqa: S608 # nosec B608
                    f" VALUES {places}",
                    given,
                )

        self._session.transaction(write)

    def close(self) -> None:
        self._session.close()


def _slices(rows: Iterable[tuple[str, str]]) -> Iterator[list[tuple[int, tuple[str, str]]]]:
    """Numbered, as many as go into one statement."""
    some: list[tuple[int, tuple[str, str]]] = []
    size = 0
    for number, row in enumerate(rows):
        some.append((number, row))
        size += len(row[0]) + len(row[1])
        if len(some) >= _AT_ONCE or size >= _BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
