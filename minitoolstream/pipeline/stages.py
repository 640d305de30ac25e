"""What the three daemons do with one task. Each may be done again, and gives the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.pipeline.events import Event, events_in, key_of, line_of, shard_of
from minitoolstream.pipeline.files import events_name, find, input_name, put_once, rows_name
from minitoolstream.pipeline.ingest import read_plan
from minitoolstream.pipeline.places import Place
from minitoolstream.ports import ShardRows

Function = Callable[[Iterable[tuple[str, Event]]], Iterable[Mapping[str, Any]]]
DEFAULT_FUNCTION = "minitoolstream.pipeline.aggregate:by_key"


@dataclass(frozen=True, slots=True)
class Work:
    """One task of a stage."""

    filename: str
    shard: int


Result = Mapping[str, Any]


def split(files: Place, task: Work) -> Result:
    """The messages of one shard, by their keys."""
    plan, name = read_plan(files, task.filename), events_name(task.filename)
    if task.shard not in plan.shards:
        raise MtsError("bad_event_file", f"{task.filename} is not spread over shard {task.shard}")
    mine = [
        line_of(event)
        for event in events_in(_read(files, name), name)
        if shard_of(key_of(event, plan.key), plan.shards) == task.shard
    ]
    put_once(files, input_name(task.filename, task.shard), b"".join(mine))
    return {"messages": len(mine)}


def work(files: Place, task: Work, function: Function) -> Result:
    """What the function makes of a shard. Rows that an earlier run has left are kept: it may have sent them on."""
    target = rows_name(task.filename, task.shard)
    if find(files, target) is None:
        plan, name = read_plan(files, task.filename), input_name(task.filename, task.shard)
        events = events_in(_read(files, name), name)
        rows = [_checked(row) for row in function((key_of(event, plan.key), event) for event in events)]
        put_once(files, target, b"".join(map(line_of, rows)))
    return {"rows": len(_rows(files, target))}


def send(files: Place, task: Work, database: ShardRows) -> Result:
    """The shard's rows into its database, in place of those that are there of this file."""
    rows = _rows(files, rows_name(task.filename, task.shard))
    database.replace(task.filename, task.shard, [(row["key"], line_of(row).decode().rstrip()) for row in rows])
    return {"rows": len(rows)}


def load_function(name: str) -> Function:
    """`package.module:function`."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise bad_request(f"there is no function {name}: {error}", field="function") from None
    if not callable(found):
        raise bad_request(f"{name} is no function", field="function")
    function: Function = found
    return function


def _checked(row: object) -> dict[str, Any]:
    if not isinstance(row, Mapping) or not isinstance(row.get("key"), str):
        raise MtsError("bad_row", f"the function gave {row!r:.200}, which is no mapping with a text `key`")
    return dict(row)


def _rows(files: Place, name: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in _read(files, name).splitlines()]


def _read(files: Place, name: str) -> bytes:
    body = find(files, name)
    if body is None:
        raise MtsError("bad_event_file", f"{files.url(name)} is missing")
    return body
