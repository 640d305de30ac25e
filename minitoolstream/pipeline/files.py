"""The pipeline's files, and what is in them.

<filename>.plan.json          what the file holds, and how it is split
<filename>.event-ingest.txt   its messages, a JSON line each
<filename>.shard-<n>.txt      those of one shard
<filename>.shard-<n>.rows.txt what the worker made of them, a JSON line a row
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.tracking import FILE_SUFFIX
from minitoolstream.pipeline.places import Place

_TEXT = "text/plain; charset=utf-8"


def plan_name(filename: str) -> str:
    return f"{filename}.plan.json"


def events_name(filename: str) -> str:
    return f"{filename}{FILE_SUFFIX}"


def input_name(filename: str, shard: int) -> str:
    return f"{filename}.shard-{shard}.txt"


def rows_name(filename: str, shard: int) -> str:
    return f"{filename}.shard-{shard}.rows.txt"


def put_once(files: Place, name: str, pieces: Iterable[bytes]) -> bool:
    """False when it is there already: whoever was first has it."""
    try:
        files.put_pieces(name, pieces, _TEXT)
    except MtsError as error:
        if error.code != "already_exists":
            raise
        return False
    return True


def find(files: Place, name: str) -> bytes | None:
    """A small one, whole."""
    try:
        return files.get(name)
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        return None


def is_there(files: Place, name: str) -> bool:
    return name in files.names(name)


def lines_of(files: Place, name: str) -> Iterator[bytes]:
    """A file may be larger than memory: it comes line by line."""
    pieces: list[bytes] = []
    try:
        for block in files.blocks(name):
            first, *others = block.split(b"\n")
            pieces.append(first)
            if others:
                yield b"".join(pieces)
                yield from others[:-1]
                pieces = [others[-1]]
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        raise MtsError("bad_event_file", f"{files.url(name)} is missing") from None
    if rest := b"".join(pieces):
        yield rest
