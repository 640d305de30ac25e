"""Which partition a message goes to, as far as that can be told before the commit decides it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol
from zlib import crc32

HASHES = 2**32


class Routed(Protocol):
    """What the choice of a lane looks at."""

    @property
    def subject(self) -> str: ...
    @property
    def producer_id(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def codec(self) -> str | None: ...


def hash_of(group: str) -> int:
    """A group's place among all keys; the active partitions divide these between them."""
    return crc32(group.encode())


@dataclass(frozen=True, slots=True)
class Lanes:
    """The active partitions of a subject, by the first hash that goes to each, as they were heard of last."""

    starts: tuple[int, ...]
    partitions: tuple[int, ...]

    @classmethod
    def of(cls, active: Iterable[tuple[int, int]]) -> Lanes:
        """From (first hash, partition) of each."""
        ordered = sorted(active)
        return cls(tuple(start for start, _ in ordered), tuple(partition for _, partition in ordered))

    def partition_of(self, group: str) -> int:
        return self.partitions[max(bisect_right(self.starts, hash_of(group)) - 1, 0)]


LanesOf = Callable[[str], Lanes | None]
"""The lanes of a subject; None where one partition is all that is known."""


def one_lane(_subject: str) -> Lanes | None:
    return None


def arrange(messages: Sequence[Routed], lanes_of: LanesOf) -> list[Sequence[int]]:
    """The order in which messages are packed, as places in the caller's list: runs of one subject and one codec,
    lane by lane, and within a lane as they came. A range says: all of them, as they came.

    The commit re-checks each lane and ends an extent where it differs, so lanes that are out of date cost extents,
    never order.
    """
    subjects = {message.subject for message in messages}
    one_codec = len({message.codec for message in messages}) == 1
    if one_codec and len(subjects) == 1 and lanes_of(messages[0].subject) is None:
        return [range(len(messages))]
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    runs: list[Sequence[int]] = []
    for subject, indexes in by_subject.items():
        lanes = lanes_of(subject)
        ordered = indexes if lanes is None else _by_lane(indexes, messages, lanes)
        if one_codec:
            runs.append(ordered)
        else:
            runs += [list(run) for _, run in groupby(ordered, lambda index: messages[index].codec)]
    return runs


def _by_lane(indexes: Iterable[int], messages: Sequence[Routed], lanes: Lanes) -> list[int]:
    by_lane: dict[Hashable, list[int]] = {}
    for index in indexes:
        by_lane.setdefault(_lane(messages[index], lanes), []).append(index)
    return [index for lane in by_lane.values() for index in lane]


def _lane(message: Routed, lanes: Lanes) -> Hashable:
    """A named producer is one lane, whatever its groups are bound to: its seqnos must be met in their order."""
    if message.producer_id is not None:
        return message.producer_id
    return None if message.group is None else lanes.partition_of(message.group)
