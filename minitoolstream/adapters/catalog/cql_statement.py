"""Prepared statements, and values bound to them: many thousands a second, so each column's writer is looked up once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from minitoolstream.adapters.catalog.values import to_ms

PROTOCOL = 4
_INT64 = struct.Struct(">q").pack
_Write = Callable[[Any, int], bytes]


class Prepared:
    """Binds one value for each column, None for null. The driver's own `bind` asks of each value whether its column is
    encrypted, and takes calendars apart."""

    def __init__(self, statement: Any) -> None:
        from cassandra.query import BoundStatement

        self._statement = statement
        self._bound = BoundStatement
        self._writers: list[_Write] = [_writer(column.type) for column in statement.column_metadata]

    def bind(self, given: Sequence[Any]) -> Any:
        bound = self._bound(self._statement)
        bound.raw_values = given  # shown by its `repr`
        bound.values = [
            None if value is None else write(value, PROTOCOL) for write, value in zip(self._writers, given, strict=True)
        ]
        return bound


def _writer(kind: Any) -> _Write:
    write: _Write = _timestamp if kind.typename == "timestamp" else kind.serialize
    return write


def _timestamp(moment: Any, _: int) -> bytes:
    return _INT64(to_ms(moment))
