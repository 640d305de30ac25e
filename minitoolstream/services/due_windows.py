"""Queues by time. Engines pass over the remains of what was taken out of one for an hour and longer, and refuse a read
that meets too many of them: so a queue is not read from its beginning each time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

LATE = timedelta(seconds=60)
"""So long behind its time an entry may come: whoever writes it was held up."""
_WHOLE_EVERY = timedelta(hours=1)
"""What comes later still is found when all of the queue is looked at."""
_REMAINS = timedelta(hours=1)
_STEP = timedelta(minutes=5)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
Window = tuple[datetime | None, datetime]
"""Behind its first moment (None: from the beginning), up to its last."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was due until `upto` has ended; `whole`: when all of it was looked at. A claim keeps it as its place."""

    upto: datetime
    whole: datetime = _NEVER

    def __str__(self) -> str:
        return f"{self.upto.isoformat()} {self.whole.isoformat()}"


def read_seen(text: str | None) -> Seen | None:
    """Versions before have written one moment alone."""
    return Seen(*map(datetime.fromisoformat, text.split())) if text else None


def is_whole(seen: Seen | None, now: datetime) -> bool:
    """Whether all of the queue is to be looked at."""
    return seen is None or now - seen.whole >= _WHOLE_EVERY


def windows(seen: Seen | None, now: datetime, beginning: datetime | None = None) -> list[Window]:
    """What is looked at now, in the order of time; few remains lie in each."""
    if seen is not None and not is_whole(seen, now):
        return [(seen.upto - LATE, now)]
    ends = [now - _REMAINS]
    while ends[-1] < now:
        ends.append(min(ends[-1] + _STEP, now))
    return list(zip([beginning, *ends], ends, strict=False))
