"""Reading the logs of the parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from minitoolstream.stack.processes import tail
from minitoolstream.stack.state import log_file

_POLL = 0.2


def last_lines(home: Path, parts: Sequence[str], count: int) -> dict[str, list[str]]:
    """The last lines of each part that has a log."""
    logs = {part: log_file(home, part) for part in parts}
    return {part: tail(log, count) if count else [] for part, log in logs.items() if log.exists()}


def follow(home: Path, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Lines written from now on, for ever; a log that does not exist yet is waited for."""
    open_files: dict[str, BinaryIO] = {}
    held: dict[str, bytes] = dict.fromkeys(parts, b"")
    existed = {part for part in parts if log_file(home, part).exists()}
    try:
        while True:
            for part in parts:
                file = open_files.get(part) or _open(log_file(home, part), at_end=part in existed)
                if file is None:
                    continue
                open_files[part] = file
                *lines, held[part] = (held[part] + file.read()).split(b"\n")
                for line in lines:
                    yield part, line.decode("utf-8", "replace")
            time.sleep(_POLL)
    finally:
        for file in open_files.values():
            file.close()


def _open(log: Path, *, at_end: bool) -> BinaryIO | None:
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return None
    if at_end:
        file.seek(0, 2)
    return file
