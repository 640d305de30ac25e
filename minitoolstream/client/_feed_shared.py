"""A shared durable: leased messages, kept as long as they are being handled, acked or given back one by one."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from minitoolstream.client._consumer_calls import ConsumerCalls
from minitoolstream.client._entries import Entry, Stage
from minitoolstream.client._feeds import Feed, Selection
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import wire_number

_log = logging.getLogger(__name__)
_LEASE = 30.0


class SharedFeed(Feed):
    def __init__(self, calls: ConsumerCalls, selection: Selection) -> None:
        self._calls = calls
        self._selection = selection
        self.durable = selection.durable or ""
        self._seconds = selection.lease or _LEASE
        self._leased: dict[str, dict[int, Entry]] = {}
        self._max_deliver = 0
        self.behind = False

    async def open(self) -> None:
        chosen = self._selection
        found = await self._calls.put(self.durable, mode="shared", start=chosen.start, filter=chosen.filter or None)
        self._seconds = chosen.lease or found.ack_wait or _LEASE
        self.beat = self._seconds / 3
        self._max_deliver = found.max_deliver or 0

    async def poll(self, limit: int, wait: float) -> list[Entry]:
        lease = await self._calls.lease(self.durable, limit, self._seconds, wait)
        entries = [Entry(message, lease.lease_id, deliveries) for message, deliveries in lease.messages]
        if entries:
            self._leased[lease.lease_id] = {entry.sequence: entry for entry in entries}
        return entries

    @property
    def dirty(self) -> bool:
        return any(entry.stage is Stage.DONE for entry in self._entries())

    async def flush(self) -> None:
        for lease_id, done in self._by_lease(entry for entry in self._entries() if entry.stage is Stage.DONE).items():
            await self._each(lease_id, done, self._ack, forget=True)

    async def nack(self, entries: Sequence[Entry], delay: float, *, untried: bool = False) -> None:
        async def give_back(lease_id: str, given: Sequence[Entry]) -> None:
            await self._calls.nack(self.durable, lease_id, _sequences(given), delay, untried=untried)

        for lease_id, given in self._by_lease(entries).items():
            for entry in given:
                entry.lose(MtsError("lease_lost", f"message {entry.sequence} was given back"))
            await self._each(lease_id, given, give_back, forget=True)

    def is_last_try(self, entry: Entry) -> bool:
        return 0 < self._max_deliver <= entry.deliveries

    async def keep(self) -> None:
        if self.by_hand:
            self._drop_unheld()
        for lease_id, held in self._by_lease(entry for entry in self._entries() if not entry.settled).items():
            await self._each(lease_id, held, self._extend, forget=False)

    def _drop_unheld(self) -> None:
        """Messages that nobody can ack any more come again when their leases end."""
        for entry in self._entries():
            if entry.stage is Stage.HANDED and entry.holder is not None and entry.holder() is None:
                _log.warning("message %d of %s was neither acked nor given back", entry.sequence, self.durable)
                entry.lose(MtsError("lease_lost", f"message {entry.sequence} was neither acked nor given back"))
                self._forget(str(entry.ticket), [entry])

    async def close(self) -> None:
        entries = self._entries()
        await self.nack([entry for entry in entries if entry.stage is Stage.WAITING], 0, untried=True)
        await self.nack([entry for entry in entries if not entry.settled], 0)

    async def ack_body(self, entry: Entry) -> dict[str, Any]:
        if entry.loss:
            raise entry.loss
        return {"lease_id": entry.ticket, "sequences": [wire_number(entry.sequence)]}

    def acked(self, entry: Entry) -> None:
        entry.stage = Stage.DONE
        self._forget(str(entry.ticket), [entry])

    async def _ack(self, lease_id: str, entries: Sequence[Entry]) -> None:
        body = {"lease_id": lease_id, "sequences": [wire_number(sequence) for sequence in _sequences(entries)]}
        sure = [entry for entry in entries if not entry.unsure]
        for entry in sure:
            entry.unsure = True
        try:
            await self._calls.ack(self.durable, body)
        except MtsError as error:
            if error.code == "lease_lost" and "resent" not in error.details:
                for entry in sure:
                    entry.unsure = False
            raise

    async def _extend(self, lease_id: str, entries: Sequence[Entry]) -> None:
        await self._calls.extend(self.durable, lease_id, self._seconds, _sequences(entries))

    async def _each(
        self,
        lease_id: str,
        entries: Sequence[Entry],
        call: Callable[[str, Sequence[Entry]], Awaitable[None]],
        *,
        forget: bool,
    ) -> None:
        """One call for all; since it is all or nothing, halves of it until the ones that are lost are found."""
        try:
            await call(lease_id, entries)
            if forget:
                self._forget(lease_id, entries)
        except MtsError as error:
            if error.code != "lease_lost":
                raise
            if len(entries) > 1:
                half = len(entries) // 2
                await self._each(lease_id, entries[:half], call, forget=forget)
                await self._each(lease_id, entries[half:], call, forget=forget)
                return
            (lost,) = entries
            if not forget and lost.settled:
                return  # it was acked while its lease was being extended
            _log.warning("the lease of message %d of %s has ended: %s", lost.sequence, self.durable, error.message)
            lost.lose(_unknown(lost, error) if lost.unsure else error)
            self._forget(lease_id, entries)

    def _entries(self) -> list[Entry]:
        return [entry for leased in self._leased.values() for entry in leased.values()]

    def _by_lease(self, entries: Iterable[Entry]) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.sequence in self._leased.get(str(entry.ticket), {}):
                found[str(entry.ticket)].append(entry)
        return found

    def _forget(self, lease_id: str, entries: Iterable[Entry]) -> None:
        leased = self._leased.get(lease_id, {})
        for entry in entries:
            leased.pop(entry.sequence, None)
        if not leased:
            self._leased.pop(lease_id, None)


def _sequences(entries: Iterable[Entry]) -> list[int]:
    return [entry.sequence for entry in entries]


def _unknown(entry: Entry, error: MtsError) -> MtsError:
    """An ack whose answer was lost has ended the lease as well as another reader may have."""
    message = f"an ack of message {entry.sequence} went unanswered and its lease has ended: it may have counted"
    return MtsError("outcome_unknown", message, error.details)
