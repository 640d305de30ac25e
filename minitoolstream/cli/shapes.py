"""What the stream commands print: the API's JSON shapes, and tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from minitoolstream.cli.progress import human_size
from minitoolstream.client import Message, Page, Receipt, State
from minitoolstream.domain.message import wire_number

_LONGEST_CELL = 60


def shape_of(found: Receipt | Message) -> dict[str, Any]:
    """As the API answers it: without what is not there, a payload in base64, large numbers as strings."""
    fields = msgspec.to_builtins(found)
    shape = {
        name: wire_number(value) if isinstance(value, int) else value
        for name, value in fields.items()
        if value is not None and value is not False
    }
    return {**shape, "encoding": "base64"} if "data" in shape else shape


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
    """A line a message; a column for payloads when some came along."""
    with_data = any(message.data is not None for message in messages)
    head = ("SEQUENCE", "TIME", "SIZE", "TYPE", "HEADERS", *(("PAYLOAD",) if with_data else ()))
    rows = [head, *(_row(message, with_data) for message in messages)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(message: Message, with_data: bool) -> tuple[str, ...]:
    when = datetime.fromtimestamp(message.create_at, UTC).astimezone()
    headers = " ".join(f"{name}={value}" for name, value in message.headers.items())
    cells = (
        str(message.sequence),
        f"{when:%Y-%m-%d %H:%M:%S}",
        human_size(message.size),
        message.content_type,
        headers,
    )
    return tuple(_cell(cell) for cell in (*cells, *((_preview(message.data),) if with_data else ())))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (row[0].rjust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]))
    return "  ".join((*numbers, *(cell.ljust(width) for cell, width in zip(row[3:], widths[3:], strict=True)))).rstrip()


def _preview(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data[: 4 * _LONGEST_CELL].decode()
    except UnicodeDecodeError:
        return f"{data[: _LONGEST_CELL // 3].hex(' ')}"


def _cell(text: str) -> str:
    """One line of printable characters: what is in a message must not steer the terminal."""
    clean = "".join(char if char.isprintable() else "·" for char in text[: _LONGEST_CELL + 1])
    return clean if len(clean) <= _LONGEST_CELL else clean[: _LONGEST_CELL - 1] + "…"
