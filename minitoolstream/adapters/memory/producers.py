"""Named producers in memory: what is stored of each, and what is still under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minitoolstream.domain.errors import MtsError, bad_request

_WINDOW = 1000


@dataclass(slots=True)
class Range:
    """Seqnos that followed each other, in sequences that did too."""

    first_seqno: int
    count: int
    first_sequence: int


@dataclass(slots=True)
class Producer:
    producer_id: str
    epoch: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    last_seqno: int | None = None
    floor: int = 0
    ranges: list[Range] = field(default_factory=list)
    pending: dict[int, str] = field(default_factory=dict)

    def is_fenced(self, epoch: int | None) -> bool:
        return epoch is not None and epoch < self.epoch

    def check_epoch(self, epoch: int | None) -> None:
        if self.is_fenced(epoch):
            raise MtsError("producer_fenced", "a newer session of this producer has started", {"epoch": self.epoch})
        if epoch is not None and epoch > self.epoch:
            raise bad_request("this epoch was never given to this producer", epoch=self.epoch)

    def headers_for(self, epoch: int | None, own: Mapping[str, str]) -> dict[str, str]:
        """A message's headers; those of the session stand beneath its own when it carries the session's epoch."""
        return {**self.headers, **own} if epoch == self.epoch else dict(own)

    def stored_sequence(self, seqno: int) -> int | None:
        """None when the seqno is new; refuses what is neither new nor provably stored."""
        if self.last_seqno is None or seqno > self.last_seqno:
            return None
        for known in self.ranges:
            if known.first_seqno <= seqno < known.first_seqno + known.count:
                return known.first_sequence + seqno - known.first_seqno
        if seqno < self.floor:
            details = {"oldest": self.floor, "last_seqno": self.last_seqno}
            raise MtsError("seqno_too_old", "this seqno is older than what is kept about this producer", details)
        details = {"last_seqno": self.last_seqno}
        raise MtsError("seqno_skipped", "this seqno was passed over: a later one is stored already", details)

    def record(self, seqno: int, sequence: int) -> None:
        last = self.ranges[-1] if self.ranges else None
        follows = last is not None and (last.first_seqno + last.count, last.first_sequence + last.count)
        if last is not None and follows == (seqno, sequence):
            last.count += 1
        else:
            self.ranges.append(Range(seqno, 1, sequence))
            if len(self.ranges) > _WINDOW:
                oldest = self.ranges.pop(0)
                self.floor = oldest.first_seqno + oldest.count
        self.last_seqno = seqno

    def first_pending(self) -> tuple[int, str] | None:
        """The earliest upload that has not ended: nothing behind it may become visible."""
        return min(self.pending.items(), default=None)
