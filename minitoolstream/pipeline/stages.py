"""What the three daemons do with one task. Each may be done again, and gives the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.pipeline.events import Event, events_in, key_of, line_of, shard_of
from minitoolstream.pipeline.files import events_name, input_name, is_there, lines_of, put_once, rows_name
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
    messages = 0

    def mine() -> Iterator[bytes]:
        nonlocal messages
        for event in events_in(lines_of(files, name), name):
            if shard_of(key_of(event, plan.key), plan.shards) == task.shard:
                messages += 1
                yield line_of(event)

    put_once(files, input_name(task.filename, task.shard), mine())
    return {"messages": messages}


def work(files: Place, task: Work, function: Function) -> Result:
    """What the function makes of a shard. Rows that an earlier run has left are kept: it may have sent them on."""
    target = rows_name(task.filename, task.shard)
    if not is_there(files, target):
        plan, name = read_plan(files, task.filename), input_name(task.filename, task.shard)
        events = events_in(lines_of(files, name), name)
        rows = function((key_of(event, plan.key), event) for event in events)
        put_once(files, target, (line_of(_checked(row)) for row in rows))
    return {"rows": sum(1 for _ in lines_of(files, target))}


def send(files: Place, task: Work, database: ShardRows) -> Result:
    """The shard's rows into its database, in place of those that are there of this file."""
    rows = _Rows(files, rows_name(task.filename, task.shard))
    database.replace(task.filename, task.shard, rows)
    return {"rows": rows.count}


@dataclass(slots=True)
class _Rows:
    """Key and JSON of each row, read anew as often as a transaction has to be tried."""

    files: Place
    name: str
    count: int = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.count = 0
        for line in lines_of(self.files, self.name):
            self.count += 1
            yield msgspec.json.decode(line, type=_Keyed).key, line.decode()


class _Keyed(msgspec.Struct):
    key: str


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
