"""The worker's function that comes with it, and a pattern for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minitoolstream.pipeline.events import Event


def by_key(events: Iterable[tuple[str, Event]]) -> Iterator[Mapping[str, Any]]:
    """A row a key: how many messages it has, of how many bytes, from which sequence to which.

    A function gets the messages of one shard in their order, each with its key, and gives rows: mappings that JSON can
    write, each with a text `key`. It should give the same rows for the same messages."""
    rows: dict[str, dict[str, Any]] = {}
    for key, event in events:
        row = rows.setdefault(key, {"key": key, "messages": 0, "bytes": 0, "first_sequence": event.sequence})
        row["messages"] += 1
        row["bytes"] += len(event.payload())
        row["last_sequence"] = event.sequence
    yield from (rows[key] for key in sorted(rows))
