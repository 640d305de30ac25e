"""Where a subscription's messages come from, and how they are acked: a position of one's own, or a durable's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minitoolstream.client._consumer_calls import ConsumerCalls, Read
from minitoolstream.client._consumer_types import filter_word
from minitoolstream.client._entries import Entry, Ledger, Stage
from minitoolstream.client._types import Start, start_word
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.message import wire_number


@dataclass(frozen=True, slots=True)
class Selection:
    """What a subscription reads, and as whom."""

    subject: str
    start: Start
    durable: str | None = None
    session: str | None = None
    filter: tuple[str, ...] = ()
    partition: int | None = None
    lease: float | None = None


class Feed:
    """One kind of reader. Calls raise what the host says; nothing is forgotten then."""

    durable = ""
    beat: float | None = None
    """Seconds between calls of `keep`; None when there is nothing to keep."""
    behind = True
    """Whether there is more behind the last poll, though it may have given nothing: a filter's scan has limits."""

    reached = True
    """Whether the host has answered once: from then on, a host that goes away is waited for."""

    packs = True
    """Whether there is memory for whole packs."""
    by_hand = False
    """Whether acks are the reader's, who can give none when its delivery is gone."""
    whole = False
    """Whether to ask for them: with a backlog they are much faster, at its end single messages come sooner."""

    def _see(self, page: Read) -> None:
        self.behind = page.next_sequence <= page.latest_sequence
        self.whole = self.behind and self.packs

    async def open(self) -> None:
        """Find or make what is read from."""

    async def poll(self, limit: int, wait: float) -> list[Entry]:
        """The next messages; waits for some, and gives none when none came."""
        raise NotImplementedError

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to tell."""
        return False

    def cover(self, entry: Entry, *, lane: bool) -> None:
        """An ack by hand: for ordered readers it stands for all before it (with `lane`, of its partition)."""

    async def flush(self) -> None:
        """Tell the host what is done."""

    async def nack(self, entries: Sequence[Entry], delay: float, *, untried: bool = False) -> None:
        """Give back, for so many seconds; only leased messages can be. `untried`: it does not count as a try."""
        details = {"sequences": [entry.sequence for entry in entries], "delay": delay, "untried": untried}
        raise MtsError("mode_mismatch", "only messages of a shared durable can be given back (nack)", details)

    def is_last_try(self, entry: Entry) -> bool:  # noqa: ARG002 - it is the shared durable's
        """Whether it becomes a dead letter when it is given back."""
        return False

    async def keep(self) -> None:
        """Say that the reader is alive."""

    async def close(self) -> None:
        """Give back what was not handled, leave."""

    def check_alone(self, entry: Entry) -> None:
        """Raises when an ack of it in a transaction would ack what other handlers have in hand."""

    async def ack_body(self, entry: Entry) -> dict[str, Any]:
        """What a transaction's ack of this message and, when ordered, of all before it says to the host."""
        raise NotImplementedError

    def acked(self, entry: Entry) -> None:
        """A transaction with such an ack was committed."""


class EphemeralFeed(Feed):
    """The reader's own position; the host knows nothing of it."""

    def __init__(self, calls: ConsumerCalls, selection: Selection) -> None:
        self._calls = calls
        self._selection = selection
        self._next: int | None = selection.start if isinstance(selection.start, int) else None
        self.reached = False  # there is nothing to open: the first poll is the first call

    async def poll(self, limit: int, wait: float) -> list[Entry]:
        # A word or a time is resolved once, without waiting: it would mean another place after a reconnect.
        start = start_word(self._selection.start) if self._next is None else self._next
        query = {
            "start": start,
            "limit": limit,
            "partition": self._selection.partition,
            "filter": filter_word(self._selection.filter),
        }
        page = await self._calls.read(query, wait if self._next is not None else 0, whole=self.whole)
        self.reached = True
        entries = [entry for entry in page.entries if self._next is None or entry.sequence >= self._next]
        self._next = page.next_sequence
        self._see(page)
        return entries

    async def ack_body(self, entry: Entry) -> dict[str, Any]:
        message = f"message {entry.sequence} was read without a durable: there is no position to ack"
        raise bad_request(message, field="durable")


class OrderedFeed(Feed):
    """A durable's position, read by this reader alone."""

    def __init__(self, calls: ConsumerCalls, selection: Selection) -> None:
        self._calls = calls
        self._selection = selection
        self.durable = selection.durable or ""
        self._ledger = Ledger(0)
        self._next: int | None = None
        self._fence: int | None = None
        self._filtered = False

    async def open(self) -> None:
        chosen = self._selection
        found = await self._calls.put(self.durable, mode="ordered", start=chosen.start, filter=chosen.filter or None)
        self._filtered = bool(found.filter)

    async def poll(self, limit: int, wait: float) -> list[Entry]:
        ledger, acked, start = self._ledger, self._ledger.acked, self._next
        query = {"durable": self.durable, "start": start, "limit": limit}
        page = await self._calls.read(query, wait, whole=self.whole)
        if ledger is not self._ledger:
            return []  # an ack was told that the durable was moved: this was asked before
        if start is None:
            self._begin(page)
        elif page.fence != self._fence or page.position < acked:
            self._moved()
            return []  # read from where it stood before
        elif page.position >= start:
            self._moved()
            self._begin(page)
        entries = [entry for entry in page.entries if self._next is None or entry.sequence >= self._next]
        for entry in entries:
            entry.ticket = page.fence
            self._ledger.add(entry)
        if self._filtered:
            self._ledger.pass_over(page.next_sequence - 1)
        self._next = page.next_sequence
        self._see(page)
        return entries

    def _moved(self) -> None:
        """What was read ahead is no longer what comes next: the host says where to go on."""
        message = f"{self.durable} was moved by a seek or another reader since this message was read"
        self._ledger.lose(MtsError("position_moved", message))
        self._ledger, self._next = Ledger(0), None

    def _begin(self, page: Read) -> None:
        self._ledger = Ledger(page.position)
        self._next, self._fence = page.position + 1, page.fence

    @property
    def dirty(self) -> bool:
        return self._ledger.to_ack is not None

    def cover(self, entry: Entry, *, lane: bool) -> None:
        if not lane:
            self._ledger.done_up_to(entry.sequence)

    async def flush(self) -> None:
        ledger, position = self._ledger, self._ledger.to_ack
        if position is None:
            return
        shown = {} if self._fence is None else {"fence": self._fence}
        try:
            await self._calls.ack(self.durable, {"sequence": wire_number(position), **shown})
        except MtsError as error:
            if error.code != "position_moved":
                raise
            if ledger is self._ledger:
                self._moved()
            return
        ledger.confirm(position)

    def check_alone(self, entry: Entry) -> None:
        if self._ledger.in_hand_before(entry.sequence):
            raise bad_request(
                f"an ack of message {entry.sequence} in a transaction would ack earlier ones that other handlers have "
                "in hand: subscribe with a session, whose acks are of one partition, or with concurrency=1",
                field="session",
            )

    async def ack_body(self, entry: Entry) -> dict[str, Any]:
        if entry.loss:
            raise entry.loss
        shown = {} if entry.ticket is None else {"fence": entry.ticket}
        return {"sequence": wire_number(entry.sequence), "from": wire_number(self._ledger.acked), **shown}

    def acked(self, entry: Entry) -> None:
        if entry.loss:
            return  # moved since: the ledger is of what was read after that
        self._ledger.done_up_to(entry.sequence)
        entry.stage = Stage.DONE
        self._ledger.confirm(entry.sequence)
