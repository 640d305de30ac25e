"""The columns of messages: their names and types for Spark, and Arrow batches of them. Needs pyarrow, not pyspark."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from minitoolstream.domain.limits import MIB
from spark_emr.reader.options import ReadOptions
from spark_emr.reader.read import Stretch

MOST_ROWS = 20_000
MOST_BYTES = 16 * MIB
_MAP = pa.map_(pa.string(), pa.string())
_TYPES: dict[str, tuple[str, Any]] = {
    "sequence": ("bigint", pa.int64()),
    "subject": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "create_at": ("bigint", pa.int64()),
    "headers": ("map<string,string>", _MAP),
    "size": ("bigint", pa.int64()),
    "object_name": ("string", pa.string()),
    "content_type": ("string", pa.string()),
    "codec": ("string", pa.string()),
    "payload": ("binary", pa.binary()),
    "chunk": ("int", pa.int32()),
    "problem": ("string", pa.string()),
}
_ALWAYS = ("sequence", "subject", "partition", "offset", "create_at", "headers", "size", "object_name")


def column_names(options: ReadOptions) -> tuple[str, ...]:
    """The payload when it is asked for; with it, what may be told of it."""
    if not options.payload:
        return _ALWAYS
    chunk = ("chunk",) if options.chunked else ()
    problem = ("problem",) if options.on_missing == "null" else ()
    return (*_ALWAYS, "payload", *chunk, *problem)


def spark_schema(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {_TYPES[name][0]}" for name in names)


def arrow_schema(names: Sequence[str]) -> Any:
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in names])


def known_columns() -> tuple[str, ...]:
    return tuple(_TYPES)


async def batches(
    stretches: AsyncGenerator[Stretch, None], names: Sequence[str], *, skip: bool = False
) -> AsyncGenerator[Any, None]:
    """Arrow batches of the messages; with `skip`, without those whose payload is missing or damaged."""
    rows = _Rows(names)
    async for stretch in stretches:
        rows.add(stretch, skip=skip)
        if rows.count >= MOST_ROWS or rows.bytes >= MOST_BYTES:
            yield rows.take()
    if rows.count:
        yield rows.take()


class _Rows:
    """Columns in the making. A stretch is added as a whole: what its messages share is repeated, not looked up."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._schema = arrow_schema(names)
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.bytes = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in self._names if name != "headers"}
        self._header_keys: list[str] = []
        self._header_values: list[str] = []
        self._header_ends: list[int] = [0]

    def add(self, stretch: Stretch, *, skip: bool) -> None:
        extent, count = stretch.extent, stretch.extent.count
        kept: Sequence[int] = range(count)
        if skip and stretch.problems:
            kept = [index for index in kept if stretch.problems.get(index, "reference") in {"reference", "unverified"}]
        whole = len(kept) == count
        first_sequence, first_offset = extent.sequence - count + 1, extent.offset - count + 1
        own = {entry[0]: entry for entry in extent.own or ()}
        sizes = extent.sizes or [extent.size]
        payloads = stretch.payloads or []
        for name, column in self._columns.items():
            if name == "sequence":
                column.extend(
                    range(first_sequence, first_sequence + count) if whole else [first_sequence + i for i in kept]
                )
            elif name == "offset":
                column.extend(range(first_offset, first_offset + count) if whole else [first_offset + i for i in kept])
            elif name == "size":
                column.extend(sizes if whole else [sizes[i] for i in kept])
            elif name == "payload":
                column.extend(payloads if whole else [payloads[i] for i in kept])
            elif name == "problem":
                column.extend([stretch.problems.get(i) for i in kept] if stretch.problems else [None] * len(kept))
            elif name == "content_type":
                shared = extent.content_type
                column.extend(
                    [own[i][2] or shared if i in own else shared for i in kept] if own else [shared] * len(kept)
                )
            elif name == "chunk":
                column.extend([stretch.chunk] * len(kept))
            else:
                column.extend([getattr(extent, name)] * len(kept))
        if "headers" in self._names:
            self._add_headers(extent.headers, own, kept)
        self.count += len(kept)
        if payloads:  # decoded, they have another size
            self.bytes += extent.size if extent.codec is None else sum(map(len, filter(None, payloads)))

    def _add_headers(self, shared: dict[str, str], own: dict[int, list[Any]], kept: Sequence[int]) -> None:
        end = self._header_ends[-1]
        if not own:
            width, count = len(shared), len(kept)
            self._header_keys.extend(list(shared) * count)
            self._header_values.extend(list(shared.values()) * count)
            self._header_ends.extend(range(end + width, end + width * count + 1, width) if width else [end] * count)
            return
        for index in kept:
            entry = own.get(index)
            headers = shared if entry is None or entry[1] is None else entry[1]
            self._header_keys.extend(headers)
            self._header_values.extend(headers.values())
            end += len(headers)
            self._header_ends.append(end)

    def take(self) -> Any:
        arrays = []
        for name in self._names:
            if name == "headers":
                arrays.append(
                    pa.MapArray.from_arrays(
                        pa.array(self._header_ends, pa.int32()),
                        pa.array(self._header_keys, pa.string()),
                        pa.array(self._header_values, pa.string()),
                    )
                )
            elif name == "payload":
                arrays.append(_binary(self._columns[name]))
            else:
                arrays.append(pa.array(self._columns[name], _TYPES[name][1]))
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _binary(values: list[bytes | None]) -> Any:
    """An Arrow array of them, in one copy: Arrow's own way takes them one by one, for some times the CPU."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return pa.array(values, pa.binary())
    ends = array("i", accumulate(map(len, present), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(present), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(present))])
