"""The ceiling of sequences as the bucket knows it: an empty object a value, the largest name counts (rule 28)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from minitoolstream.domain.keys import CEILING_PREFIX
from minitoolstream.domain.limits import MAX_SEQUENCE

STEP = 2**24
BUCKET_IS_AHEAD = "this Tarantool is older than its bucket"
_NAME = re.compile(rf"{CEILING_PREFIX}(\d{{20}})\Z")


def ceiling_name(value: int) -> str:
    return f"{CEILING_PREFIX}{value:020}"


def next_ceiling(given: int) -> int:
    """Far enough above what is given that it is raised seldom, near enough that a restore skips little."""
    return min(given + STEP, MAX_SEQUENCE)


def highest(names: Iterable[str]) -> int:
    """The ceiling of a bucket with these objects; 0 when there is none. Foreign names say nothing."""
    return max((int(found[1]) for name in names if (found := _NAME.match(name))), default=0)


def lower_than(names: Iterable[str], value: int) -> list[str]:
    return [name for name in names if (found := _NAME.match(name)) and int(found[1]) < value]
