"""What the stream commands print: the API's JSON shapes, and tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from minitoolstream.cli.progress import human_size
from minitoolstream.client import Consumer, Deletion, Message, Page, Receipt, State, SubjectDetails, SubjectInfo
from minitoolstream.domain.message import wire_number

_LONGEST_CELL = 60


def shape_of(found: Receipt | Message | Consumer | SubjectInfo | SubjectDetails | Deletion) -> dict[str, Any]:
    """As the API answers it: without what is not there, a payload in base64, large numbers as strings."""
    shape: dict[str, Any] = _wire(msgspec.to_builtins(found))
    return {**shape, "encoding": "base64"} if "data" in shape else shape


def _wire(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _wire(one) for name, one in value.items() if one is not None and one is not False}
    if isinstance(value, list | tuple):
        return [_wire(one) for one in value]
    return wire_number(value) if isinstance(value, int) else value


def receipt_text(receipt: Receipt) -> str:
    if receipt.state is State.COMMITTED:
        again = " (it was there already)" if receipt.duplicate else ""
        return f"message {receipt.sequence}{again}"
    if receipt.state is State.STORED:
        waits = f" {receipt.waits_for}" if receipt.waits_for else "s with lower seqnos"
        return f"stored as {receipt.upload_id}; visible when the upload{waits} has ended"
    reason = f": {receipt.reason}" if receipt.reason else ""
    return f"{receipt.state.value}{reason}"


def page_shape(page: Page) -> dict[str, Any]:
    return {
        "messages": [shape_of(message) for message in page.messages],
        "next_sequence": wire_number(page.next_sequence),
        "latest_sequence": wire_number(page.latest_sequence),
    }


def page_text(messages: Sequence[Message]) -> str:
    """A line a message; a column for payloads when some came along, and for partitions when there are several."""
    with_data = any(message.data is not None for message in messages)
    head = ("SEQUENCE", "TIME", "SIZE", "TYPE", "HEADERS", *(("PAYLOAD",) if with_data else ()))
    return table(head, [_row(message, with_data) for message in messages], numbers=(0, 2))


def message_line(message: Message, data: bytes | None) -> str:
    """One message as it comes: what follows is not known, so the columns have widths of their own."""
    sequence, when, size, kind, headers, *_ = _row(message, with_data=False)
    start = f"{sequence:>8}  {when}  {size:>9}  {kind}"
    return "  ".join(part for part in (start, headers, _cell(_preview(data))) if part)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Columns for people; those of `numbers` are aligned at their right."""
    lines = [head, *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def peer_problems(peers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each store of copies that is away or full."""
    for one in peers:
        name, reason = one["peer_id"], printable(one.get("reason", ""))
        if one["state"] in ("down", "lost"):
            yield f"! peer {name} is {one['state']} since {one.get('since')}: {reason}"
        elif one.get("full"):
            yield f"! peer {name} gets no new copies until {one.get('full_until')}: {reason}"


def fields_text(fields: Sequence[tuple[str, object]]) -> str:
    """`name  value` lines, without those that have no value."""
    shown = [(name, str(value)) for name, value in fields if value not in (None, "", (), [], {})]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name.ljust(width)}  {printable(value)}" for name, value in shown)


_UNITS = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def life_text(seconds: float) -> str:
    """604800 -> 7d; what is no whole number of a unit in the next smaller one."""
    for unit, length in _UNITS:
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:g}{unit}"
    return f"{seconds:g}s"


def when_text(seconds: int | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _row(message: Message, with_data: bool) -> tuple[str, ...]:
    headers = " ".join(f"{name}={value}" for name, value in message.headers.items())
    cells = (
        str(message.sequence),
        when_text(message.create_at),
        human_size(message.size),
        message.content_type,
        headers,
    )
    return tuple(_cell(cell) for cell in (*cells, *((_preview(message.data),) if with_data else ())))


def _preview(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data[: 4 * _LONGEST_CELL].decode()
    except UnicodeDecodeError:
        return f"{data[: _LONGEST_CELL // 3].hex(' ')}"


def printable(text: str) -> str:
    """One line of printable characters: what is in a message must not steer the terminal."""
    return "".join(char if char.isprintable() else "·" for char in text)


def _cell(text: str) -> str:
    """The same, cut where a column would become too wide."""
    clean = printable(text[: _LONGEST_CELL + 1])
    return clean if len(clean) <= _LONGEST_CELL else clean[: _LONGEST_CELL - 1] + "…"
