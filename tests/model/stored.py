"""Messages as Tarantool's rows tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

FRAME_PREFIX = 8
SEQUENCE, HEADERS, OBJECT_NAME, PARTITION, OFFSET, COUNT, SIZE, BYTE_FROM, SIZES, OWN = 0, 1, 2, 5, 6, 7, 8, 9, 10, 11


@dataclass(frozen=True)
class Stored:
    """`extent` is the last sequence of the extent it lies in; `payload` tells where its bytes are."""

    sequence: int
    extent: int
    partition: int
    offset: int
    payload: tuple[str, int, int]
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


def messages_of(rows: Iterable[Sequence[Any]]) -> list[Stored]:
    return [message for row in rows for message in _messages(row)]


def _messages(row: Sequence[Any]) -> Iterable[Stored]:
    count, byte_from = row[COUNT], row[BYTE_FROM]
    own = {entry[0]: entry[1] for entry in row[OWN] or ()}
    for index in range(count):
        behind = count - 1 - index
        size = row[SIZES][index] if count > 1 else row[SIZE]
        headers = own.get(index) or row[HEADERS]
        yield Stored(
            row[SEQUENCE] - behind,
            row[SEQUENCE],
            row[PARTITION],
            row[OFFSET] - behind,
            (row[OBJECT_NAME], byte_from, size),
            tuple(sorted(headers.items())),
        )
        byte_from += size + FRAME_PREFIX
