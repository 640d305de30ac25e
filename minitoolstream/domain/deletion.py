"""Deletions that the law or an owner asks for, and the pack that takes the place of one with deleted messages in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.keys import DELETION_PREFIX
from minitoolstream.domain.limits import MAX_REASON_LENGTH
from minitoolstream.domain.pack import FRAME_PREFIX, read_head, write_head


class Deletion(msgspec.Struct, frozen=True):
    """What is deleted, by whom and why. `sequences` are all messages that shared the payload of `sequence`, which was
    in `object_name`; `removed`: readers see nothing of it any more; `done`: neither does the bucket."""

    id: str
    kind: str
    subject: str
    at: int
    who: str
    reason: str
    messages: int
    bytes: int
    sequence: int | None = None
    upto: int | None = None
    sequences: tuple[int, ...] = ()
    removed: bool = True
    done: bool = False
    object_name: str | None = None


def deletion_name(deletion_id: str) -> str:
    return DELETION_PREFIX + deletion_id


def check_reason(reason: str) -> str:
    if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
        raise bad_request(f"a reason is one line of at most {MAX_REASON_LENGTH} characters", field="reason")
    return reason


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of a pack that somebody needs: a row, by its key, or an upload that waits in it, by its id. `facts` are
    what a pack's head says of its messages."""

    kind: str
    key: int | str
    first: int
    length: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Move:
    """Where the same bytes are in the new pack."""

    kept: Kept
    first: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The new pack: its head, then these runs (first byte, behind the last) of the old one; and who is where in it."""

    head: bytes
    runs: list[tuple[int, int]]
    moves: list[Move]

    @property
    def size(self) -> int:
        return len(self.head) + sum(end - start for start, end in self.runs)


def lay_out(kept: Sequence[Kept], old_head: bytes) -> Layout:
    """A pack of what is kept, each byte once, in its order. `old_head`: the beginning of the old pack, or nothing
    where that is not one of ours; who published what is taken over from it."""
    in_order = sorted(kept, key=lambda one: (one.first, -one.length))
    runs: list[tuple[int, int]] = []
    groups: list[dict[str, Any]] = []
    marks = _marks(old_head)
    for one in in_order:
        end = one.first + one.length
        if runs and end <= runs[-1][1]:
            continue  # a dead letter, say: its bytes and their description are there
        groups.append(_group(one, marks))
        if runs and one.first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((one.first, end))
    head = write_head(groups)
    moves, position = [], len(head)
    waiting = iter(in_order)
    one_left = next(waiting, None)
    for start, end in runs:
        while one_left is not None and one_left.first < end:
            moves.append(Move(one_left, position + one_left.first - start))
            one_left = next(waiting, None)
        position += end - start
    return Layout(head, runs, moves)


def _marks(old_head: bytes) -> dict[int, dict[str, Any]]:
    """What a head says of single frames, by the byte at which they begin."""
    found: dict[int, dict[str, Any]] = {}
    for group in read_head(old_head) or ():
        position = group["byte_from"]
        by_index = {mark["index"]: mark for mark in group.get("marks") or ()}
        for index, size in enumerate(group["sizes"]):
            if index in by_index:
                found[position] = by_index[index]
            position += size + FRAME_PREFIX
    return found


def _group(one: Kept, marks: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    facts, position, own_marks = one.facts, one.first, []
    for index, size in enumerate(facts["sizes"]):
        if position in marks:
            own_marks.append({**marks[position], "index": index})
        position += size + FRAME_PREFIX
    return {
        "subject": facts["subject"],
        "headers": facts["headers"],
        "content_type": facts.get("content_type"),
        "codec": facts.get("codec"),
        "sizes": list(facts["sizes"]),
        "own": facts.get("own") or [],
        "marks": own_marks,
        "transaction_id": facts.get("transaction_id"),
    }
