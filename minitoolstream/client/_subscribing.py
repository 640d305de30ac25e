"""What `subscribe` takes, checked and put together: the right feed, limits, kind of acks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from minitoolstream.client._consumer_calls import ConsumerCalls
from minitoolstream.client._consumer_types import as_conditions
from minitoolstream.client._feed_session import SessionFeed
from minitoolstream.client._feed_shared import SharedFeed
from minitoolstream.client._feeds import EphemeralFeed, Feed, OrderedFeed, Selection
from minitoolstream.client._intake import Intake, Limits
from minitoolstream.client._read import Reader
from minitoolstream.client._types import Start, start_word
from minitoolstream.domain.consumer import Mode
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.limits import MIB

Ack = Literal["auto", "manual"]
PREFETCH_BYTES = 32 * MIB
_PACKS_FROM = 16 * MIB
"""With less room for payloads, packs are not fetched whole: most are smaller than this."""
_PREFETCH = 1000
_PREFETCH_SHARED = 20
"""Fewer: what one reader holds, no other can work on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribing:
    """The arguments of `subscribe`, see there."""

    subject: str
    start: Start = "first"
    durable: str | None = None
    mode: Mode = "ordered"
    session: str | None = None
    filter: str | Sequence[str] = ()
    partition: int | None = None
    ack: Ack = "auto"
    prefetch: int | None = None
    prefetch_bytes: int = PREFETCH_BYTES
    lease: float | None = None
    idle: float | None = None

    def check(self) -> None:
        shared = self.mode == "shared"
        wrong = {
            "mode": self.mode not in ("ordered", "shared") or (shared and self.durable is None),
            "session": self.session is not None and (self.durable is None or shared),
            "partition": self.partition is not None and self.durable is not None,
            "lease": self.lease is not None and not (shared and self.lease >= 1),
            "ack": self.ack not in ("auto", "manual"),
            "prefetch": self.prefetch is not None and self.prefetch < 1,
            "prefetch_bytes": self.prefetch_bytes < 1,
            "idle": self.idle is not None and self.idle < 0,
        }
        for field, is_wrong in wrong.items():
            if is_wrong:
                raise bad_request(_WHY[field], field=field)
        start_word(self.start)

    @property
    def ordered(self) -> bool:
        return self.mode == "ordered"

    @property
    def auto(self) -> bool:
        return self.ack == "auto"

    def intake(self, reader: Reader, call_soon: Callable[[Callable[[], object]], object]) -> Intake:
        self.check()
        messages = self.prefetch or (_PREFETCH if self.ordered else _PREFETCH_SHARED)
        feed = self._feed(reader)
        feed.by_hand = not self.auto
        feed.packs = self.prefetch_bytes >= _PACKS_FROM
        return Intake(reader, feed, Limits(messages, self.prefetch_bytes, self.idle), call_soon)

    def _feed(self, reader: Reader) -> Feed:
        calls = ConsumerCalls(reader.transport, self.subject)
        selection = Selection(
            subject=self.subject,
            start=self.start,
            durable=self.durable,
            session=self.session,
            filter=as_conditions(self.filter),
            partition=self.partition,
            lease=self.lease,
        )
        if self.durable is None:
            return EphemeralFeed(calls, selection)
        if self.mode == "shared":
            return SharedFeed(calls, selection)
        return OrderedFeed(calls, selection) if self.session is None else SessionFeed(calls, selection)


_WHY = {
    "mode": "mode is ordered or shared, and shared needs a durable",
    "session": "readers share partitions by sessions when they have an ordered durable",
    "partition": "a partition can be chosen without a durable; readers of a durable share them by sessions",
    "lease": "lease is a number of seconds from 1 on, of a shared durable",
    "ack": "ack is auto or manual",
    "prefetch": "prefetch is at least 1",
    "prefetch_bytes": "prefetch_bytes is at least 1",
    "idle": "idle is a number of seconds from 0 on",
}
