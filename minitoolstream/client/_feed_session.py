"""A durable whose partitions several readers share: this one's session, its partitions, its fences."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from minitoolstream.client._consumer_calls import ConsumerCalls
from minitoolstream.client._entries import Entry, Ledger, Stage
from minitoolstream.client._feeds import Feed, Selection
from minitoolstream.domain.consumer import Session, Share
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import wire_number

_log = logging.getLogger(__name__)
TTL = 30


class SessionFeed(Feed):
    """Joins again when the host has dropped the session. Fenced by a namesake, it ends: two would fence each other."""

    def __init__(self, calls: ConsumerCalls, selection: Selection) -> None:
        self._calls = calls
        self._selection = selection
        self.durable = selection.durable or ""
        self._session: Session | None = None
        self._ledgers: dict[int, Ledger] = {}
        self._changed = asyncio.Event()
        self._filtered = False
        self.beat = TTL / 3

    async def open(self) -> None:
        chosen = self._selection
        found = await self._calls.put(self.durable, mode="ordered", start=chosen.start, filter=chosen.filter or None)
        self._filtered = bool(found.filter)
        await self._join()

    async def _join(self) -> Session:
        self._session = await self._calls.join(self.durable, self._selection.session or "", TTL)
        self.beat = self._session.ttl / 3
        self._assign(self._session.partitions)
        return self._session

    async def _joined(self) -> Session:
        return self._session or await self._join()

    def _assign(self, partitions: Sequence[Share]) -> None:
        """What moved to another reader is dropped; what came is read from its position on."""
        now = {given.partition: given for given in partitions}
        for partition, ledger in list(self._ledgers.items()):
            if partition not in now or now[partition].fence != ledger.fence:
                loss = _moved(partition) if partition in now else _lost(partition)
                _log.info("%s: %s", self.durable, loss.message)
                ledger.lose(loss)
                del self._ledgers[partition]
                self._changed.set()
        for partition, given in now.items():
            if partition not in self._ledgers:
                self._ledgers[partition] = Ledger(given.position, given.fence)
                self._changed.set()

    def _left(self, error: MtsError) -> None:
        """The host does not know this session any more: its partitions are gone."""
        _log.warning("the session %s of %s has ended: %s", self._selection.session, self.durable, error.message)
        self._session = None
        self._assign(())

    async def poll(self, limit: int, wait: float) -> list[Entry]:
        session = await self._joined()
        self._changed.clear()
        self.behind = True
        positions = sorted((partition, ledger.read_to) for partition, ledger in self._ledgers.items())
        query = {
            "durable": self.durable,
            "session": session.session_id,
            "epoch": session.epoch,
            "after": ",".join(f"{partition}:{sequence}" for partition, sequence in positions) or None,
            "limit": limit,
        }
        reading = asyncio.ensure_future(self._calls.read(query, wait, whole=self.whole))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((reading, changed), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return []  # other partitions than those asked for: ask again
            page = reading.result()
        except MtsError as error:
            return self._refused(error)
        finally:
            changed.cancel()
            reading.cancel()
        if self._session is not session:
            return []
        if page.partitions is not None:
            self._assign(page.partitions)
        if self._changed.is_set():
            return []  # some of it may be of a partition that has left and come back: read it again
        self._see(page)
        entries = []
        for entry in page.entries:
            ledger = self._ledgers.get(entry.message.partition)
            if ledger is not None and entry.sequence > ledger.read_to:
                entry.ticket = ledger.fence
                ledger.add(entry)
                entries.append(entry)
        if self._filtered:
            for ledger in self._ledgers.values():
                ledger.pass_over(page.next_sequence - 1)
        return entries

    def _refused(self, error: MtsError) -> list[Entry]:
        if error.code != "unknown_session":
            raise error
        self._left(error)
        return []

    @property
    def dirty(self) -> bool:
        return any(ledger.to_ack is not None for ledger in self._ledgers.values())

    def cover(self, entry: Entry, *, lane: bool) -> None:
        for partition, ledger in self._ledgers.items():
            if not lane or partition == entry.message.partition:
                ledger.done_up_to(entry.sequence)

    async def flush(self) -> None:
        while (session := self._session) and self.dirty:
            due = [(partition, ledger, ledger.to_ack) for partition, ledger in self._ledgers.items()]
            acks = [(partition, ledger, position) for partition, ledger, position in due if position is not None]
            body = {
                "session_id": session.session_id,
                "epoch": session.epoch,
                "partitions": [
                    {"partition": partition, "fence": ledger.fence, "sequence": wire_number(position)}
                    for partition, ledger, position in acks
                ],
            }
            try:
                await self._calls.ack(self.durable, body)
            except MtsError as error:
                if error.code in ("partition_lost", "position_moved"):
                    await self.keep()  # tells which: they are dropped, the others acked again
                    if all(self._ledgers.get(partition) is ledger for partition, ledger, _ in acks):
                        raise
                else:
                    self._refused(error)
                continue
            for _, ledger, position in acks:
                ledger.confirm(position)

    async def keep(self) -> None:
        session = await self._joined()
        try:
            answer = await self._calls.heartbeat(self.durable, session)
        except MtsError as error:
            self._refused(error)
            return
        if self._session is session:
            self._session = answer
            self._assign(answer.partitions)

    async def close(self) -> None:
        if self._session:
            await self._calls.leave(self.durable, self._session)

    async def ack_body(self, entry: Entry) -> dict[str, Any]:
        session = self._session
        if session is None or entry.loss:
            raise entry.loss or MtsError("unknown_session", "the session of this reader has ended")
        partition = entry.message.partition
        ledger = self._ledgers.get(partition)
        if ledger is None or ledger.fence != entry.ticket:
            raise _lost(partition)
        acked = {
            "partition": partition,
            "fence": entry.ticket,
            "sequence": wire_number(entry.sequence),
            "from": wire_number(ledger.acked),
        }
        return {"session_id": session.session_id, "epoch": session.epoch, "partitions": [acked]}

    def acked(self, entry: Entry) -> None:
        ledger = self._ledgers.get(entry.message.partition)
        if ledger is not None and ledger.fence == entry.ticket:
            ledger.done_up_to(entry.sequence)
            entry.stage = Stage.DONE
            ledger.confirm(entry.sequence)


def _lost(partition: int) -> MtsError:
    message = f"partition {partition} is another reader's now; what was not acked comes to it again"
    return MtsError("partition_lost", message, {"partition": partition})


def _moved(partition: int) -> MtsError:
    message = f"partition {partition} was moved by a seek, or was another reader's meanwhile: read it from there again"
    return MtsError("position_moved", message, {"partition": partition})
