"""Queues by time. Engines pass over the remains of what was taken out of one for an hour and longer, and refuse a read
that meets too many of them: so a queue is not read from its beginning each time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

LATE = timedelta(seconds=60)
"""So long behind its time an entry may come: whoever writes it was held up."""
_WHOLE_EVERY = timedelta(hours=2)
"""What comes later still is found when all of the queue is looked at: when nothing of the last time remains."""
_REMAINS = timedelta(hours=1)
"""`gc_grace_seconds` of such tables."""
_STEP = timedelta(minutes=5)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
Window = tuple[datetime, datetime]
"""Behind its first moment, up to its last."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was due until `upto` has ended. `whole`: when all of the queue was looked at; never while that goes on. A
    claim keeps it as its place."""

    upto: datetime = _NEVER
    whole: datetime = _NEVER

    def __str__(self) -> str:
        return f"{self.upto.isoformat()} {self.whole.isoformat()}"


def read_seen(text: str | None) -> Seen:
    return Seen(*map(datetime.fromisoformat, text.split())) if text else Seen()


def is_whole(seen: Seen, now: datetime) -> bool:
    """Whether all of the queue is to be looked at: also when a clock that was ahead has written the place."""
    return seen.upto > now + LATE or not -LATE <= now - seen.whole < _WHOLE_EVERY


def windows(seen: Seen, now: datetime, beginning: datetime = _NEVER) -> list[Window]:
    """What is looked at now, in the order of time: in short windows where much may have been taken out lately. A look
    at all of it goes on where it was cut off."""
    if not is_whole(seen, now):
        return [(seen.upto - LATE, now)]
    goes_on = seen.whole == _NEVER and seen.upto <= now
    ends = [max(beginning, seen.upto - LATE) if goes_on else beginning]
    ends += [end for end in [now - _REMAINS] if end > ends[-1]]
    while ends[-1] < now:
        ends.append(min(ends[-1] + _STEP, now))
    return list(pairwise(ends))


def so_far(seen: Seen, upto: datetime, now: datetime) -> Seen:
    """In the middle of a run that began at `now`."""
    return Seen(upto, _NEVER if is_whole(seen, now) else seen.whole)


def looked_at(seen: Seen, upto: datetime, now: datetime) -> Seen:
    """Behind a run that began at `now` and left nothing that was due until `upto`."""
    return Seen(upto, now if is_whole(seen, now) else seen.whole)
