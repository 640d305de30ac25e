"""One content brought to where it shall be: missing copies made, those that nobody needs removed, rows in step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from minitoolstream.domain.catalog_tables import BY_PEER, PEERS, PLACEMENTS, QUEUE
from minitoolstream.domain.cid import Cid
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.pin import FAILED, PINNED, Pin
from minitoolstream.domain.placement import LONGEST_PAUSE, Peer, next_look
from minitoolstream.ports.catalog import Change, Delete, Put, Row
from minitoolstream.services.copy_content import copy_content, key_of, peer_name, sources, takes_long
from minitoolstream.services.core import Core
from minitoolstream.services.patience import Patience
from minitoolstream.services.pin_holders import delete_row, find_pin, is_still
from minitoolstream.services.place_copies import (
    MAYBE_COMING,
    assigned,
    count,
    desired_of,
    event,
    listed,
    look_at,
    may_come,
    soon,
    unlisted,
)
from minitoolstream.services.write_together import Together

_FULL_FOR = timedelta(minutes=10)
_LONGEST_REQUEST = 40.0  # seconds; an object store's request and its repetition
_LONGEST_WRITE = 12.0  # rows that wait for each other, and for an engine that does not answer at once
_NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class Counts:
    """What a run did. `by_peer` are bytes that peers gained or lost."""

    looked_at: int = 0
    copied: int = 0
    removed: int = 0
    failed: int = 0
    ended: int = 0
    bytes: int = 0
    by_peer: Counter[str] = field(default_factory=Counter)

    def counts(self) -> Mapping[str, int]:
        return {name: getattr(self, name) for name in ("looked_at", "copied", "removed", "failed", "ended", "bytes")}


@dataclass(slots=True)
class Run:
    """What all contents of a run share."""

    core: Core
    peers: list[Peer]
    has: Callable[[int, float], bool]
    """Whether a slice is ours, and will be for some seconds."""
    writing: Together
    copying: asyncio.Semaphore
    in_parts: asyncio.Semaphore
    patience: Patience = field(default_factory=Patience)
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class Content:
    """A content under the claim of its slice: nobody else moves its copies meanwhile."""

    run: Run
    cid: Cid
    entries: list[Row]
    pin: Pin | None
    placement: Row
    now: datetime
    sizes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, MtsError] = field(default_factory=dict)
    wanted: frozenset[str] = _NONE
    changed: bool = False
    """Somebody has changed the pin since it was read."""
    left: datetime | None = field(init=False)
    """The earliest of its entries that is to be met again."""

    def __post_init__(self) -> None:
        self.left = self.entries[0]["due"]

    @property
    def core(self) -> Core:
        return self.run.core

    @property
    def counts(self) -> Counts:
        return self.run.counts

    @property
    def _size(self) -> int | None:
        """As it is known from earlier."""
        return self.placement.get("size") or (self.pin.size if self.pin is not None else None)

    @property
    def _tries(self) -> int:
        """Looks in a row that failed."""
        return int(self.placement.get("reconcile_count") or 0)

    @property
    def _key(self) -> Row:
        return self.cid.columns

    def _set(self, name: str) -> frozenset[str]:
        return frozenset(self.placement.get(name, _NONE))

    @property
    def _held(self) -> frozenset[str]:
        return self._set("actual")

    def begin(self) -> tuple[list[Change], list[Change]]:
        """Two steps to be written before it is settled: where it shall be, so that whoever dies leaves no copy that no
        row names, and what is under way again; then the rows by peer, which the end writes, too. Most often whoever
        pinned it has said so."""
        if self.pin is None:
            return [], []
        held, before, failed = self._held, self._set("desired"), self._set("failed")
        self.wanted = desired_of(self.pin, self.run.peers, held)
        missing = self.wanted - held
        again = missing & ((before - self._set("in_progress")) | failed)
        begun: Row = {"last_reconcile": self.now} if missing and takes_long(self._size) else {}
        if self.wanted == before and not again and not begun:
            return [], []
        placement, *by_peer = assigned(self.pin, before, self.wanted, self.now, again)
        return [replace(placement, row={**placement.row, **begun})], [*by_peer]

    async def settle(self) -> None:
        """What `begin` told has been written."""
        self.counts.looked_at += 1
        self.now = self.core.wall()
        if self.pin is None and not self.placement:
            await self._forget_unless_new()
            return
        held, wanted = self._held, self.wanted
        made = await self._copy(wanted - held) if wanted - held else _NONE
        have = held | made
        # A copy that is not wanted goes when those that are wanted are there: never fewer than before.
        leftovers = (have | self._set("desired") | self._set("in_progress") | self._set("failed")) - wanted
        gone = await self._remove(leftovers) if wanted <= have and leftovers else _NONE
        await self._finish(wanted, have - gone, made, gone)

    async def _forget_unless_new(self) -> None:
        new = [entry for entry in self.entries if self.now - entry["due"] < MAYBE_COMING]
        await self.run.writing.write(self._done_but(new))

    async def _copy(self, missing: frozenset[str]) -> frozenset[str]:
        """Those that have it now."""
        held, patience = sorted(self._held), self.run.patience

        async def copy(peer: str) -> None:
            name = f"to {peer_name(peer)}"
            try:
                async with self.run.copying:
                    patience.check(name)
                    found = sources(self.core, self.cid, self.pin, held)
                    target = self.core.peers.payloads(peer)
                    self.sizes[peer] = await copy_content(self.cid, target, found, self.run.in_parts, patience)
                patience.answered(name)
            except MtsError as error:
                self.problems[peer] = error
                if error.details.get("at_target"):
                    patience.failed(name, error)

        with self.run.writing.coming():
            # One alone needs no task of its own.
            await (asyncio.gather(*map(copy, missing)) if len(missing) > 1 else copy(*missing))
        self.counts.copied += len(self.sizes)
        self.counts.failed += len(self.problems)
        self.counts.bytes += sum(self.sizes.values())
        self.counts.by_peer.update(self.sizes)
        return frozenset(self.sizes)

    async def _remove(self, leftovers: frozenset[str]) -> frozenset[str]:
        """They leave `actual` first: a pin that comes back must not count on them."""
        leaving = Put(PLACEMENTS, self._key, plus={"in_progress": leftovers}, minus={"actual": leftovers})
        await self.run.writing.write([leaving])
        if not await self._is_as_read():
            self.changed = True
            await self._put_back(leftovers & self._held)
            return _NONE
        # What is not in `actual` counts no more, whenever its object goes.
        self.counts.by_peer.subtract(dict.fromkeys(leftovers & self._held, self._size or 0))
        known = {peer.id for peer in self.core.peers.peers()}
        gone = set(leftovers - known)  # what is not configured any more cannot be asked

        async def remove(peer: str) -> None:
            name = peer_name(peer)
            # What is removed later may be somebody's again.
            if not self.run.has(self.entries[0]["slice"], _LONGEST_REQUEST):
                self.problems[peer] = unavailable("the claim on this content ends")
                return
            try:
                self.run.patience.check(name)
                if not await self.core.peers.payloads(peer).delete_many([key_of(self.cid)]):
                    raise unavailable("the peer does not say that its copy is gone")
                gone.add(peer)
                self.run.patience.answered(name)
            except MtsError as error:
                self.problems[peer] = error
                self.run.patience.failed(name, error)

        await asyncio.gather(*map(remove, leftovers & known))
        self.counts.removed += len(gone & known & self._held)
        return frozenset(gone)

    async def _is_as_read(self) -> bool:
        """Pins are written before their placements are read, and here it is the other way round: of a removal and a
        pin that comes back, one sees the other."""
        if self.pin is None:
            return await find_pin(self.core, self.cid) is None
        return await is_still(self.core, self.pin)

    async def _put_back(self, kept: frozenset[str]) -> None:
        """Marked as before: whoever wants it again has written its row by peer anew, and the next look mends that."""
        if kept:
            await self.run.writing.write([Put(PLACEMENTS, self._key, plus={"actual": kept})])

    async def _finish(
        self, wanted: frozenset[str], have: frozenset[str], made: frozenset[str], gone: frozenset[str]
    ) -> None:
        if not self.run.has(self.entries[0]["slice"], _LONGEST_WRITE):
            await self._leave(made)
            return
        if not self.problems and not self.changed and not have and (self.pin is None or self.pin.ended):
            await self._end()
            return
        settled = wanted <= have and not self.problems
        tries = 0 if settled else self._tries + 1
        failed = frozenset(self.problems) & wanted
        row = {"reconcile_count": tries, "last_reconcile": self.now, "drift_detected": not settled}
        size = next(iter(self.sizes.values()), None)
        if size is not None and size != self.placement.get("size"):
            row["size"] = size
        changed = {"actual": made, "failed": failed}
        # Also where it was not wanted for a while.
        there = made | (wanted & have & (self._set("in_progress") | (wanted - self._set("desired"))))
        over = {
            "in_progress": there | failed | gone,
            "failed": (made | gone) & self._set("failed"),
        }
        placement = Put(
            PLACEMENTS,
            {**self._key, **row, "updated_at": self.now},
            plus={name: some for name, some in changed.items() if some},
            minus={name: some for name, some in over.items() if some},
        )
        by_peer: list[Change] = [
            *(Put(BY_PEER, self._peer_row(peer)) for peer in there | failed),
            *(Delete(BY_PEER, (peer, *self.cid.key)) for peer in gone),
        ]
        await self._note_full()
        if size and not self._size:
            await count(self.core, self.cid, 0, size)
        pause = next_look(tries) if not settled or self.changed else self._until_room()
        later = [] if pause is None else [look_at(self.cid, soon(self.now, pause))]
        # Whoever dies in between leaves it to be looked at, and the next does again what the placement does not tell.
        await self.run.writing.write([*by_peer, *later], [placement], self._done())

    async def _leave(self, made: frozenset[str]) -> None:
        """Another may have settled it since. What was made is named, and whoever looks next decides about it."""
        if made:
            again = look_at(self.cid, soon(self.core.wall(), 1.0))
            await self.run.writing.write([again], [Put(PLACEMENTS, self._key, plus={"in_progress": made})])

    def _until_room(self) -> float | None:
        """Seconds, when there are too few copies because a peer is full: nothing else tells that it takes more again.
        The older the pin, the more there are like it, and the rarer each is looked at."""
        pin = self.pin
        if pin is None or pin.ended or len(self.wanted) >= pin.rf:
            return None
        if not any(not peer.takes_new and (not pin.zones or peer.zone in pin.zones) for peer in self.run.peers):
            return None
        return min(max(_FULL_FOR, self.now - pin.updated_at).total_seconds(), LONGEST_PAUSE)

    def _peer_row(self, peer: str) -> Row:
        row: Row = {"peer_id": peer, **self._key, "last_seen": self.now}
        error = self.problems.get(peer)
        if error is not None:
            return {**row, "state": FAILED, "error_message": error.message[:500], "retry_count": self._tries + 1}
        size = self.sizes.get(peer, self._size)
        return {**row, "state": PINNED, "completed_at": self.now, "pin_size": size, "error_message": None}

    async def _note_full(self) -> None:
        """A full peer gets no new copies for some time; others are chosen at the next look, which is soon."""
        full = {peer: error.message for peer, error in self.problems.items() if error.details.get("full")}
        until = self.now + _FULL_FOR
        rows = [Put(PEERS, {"peer_id": peer, "full_until": until, "reason": why}) for peer, why in full.items()]
        await self.run.writing.write(rows)

    async def _end(self) -> None:
        """Nothing of it is left but rows: the pin goes last, and only if nobody has taken it up again."""
        pin = self.pin
        peers = self._set("desired") | self._set("actual") | self._set("in_progress") | self._set("failed")
        changes: list[Change] = [
            Delete(PLACEMENTS, self.cid.key),
            *(Delete(BY_PEER, (peer, *self.cid.key)) for peer in peers),
        ]
        if pin is not None:
            if not await delete_row(self.core, pin):
                return
            changes += [unlisted(pin), event(self.cid, self.now, "removed", "reconciler")]
        await self.core.catalog.write([*changes, *self._done()])
        if pin is not None:
            self.counts.ended += 1
            await count(self.core, self.cid, -1, -(self._size or 0))
            await self._came_back()

    async def _came_back(self) -> None:
        """A pin that was made anew between the row's end and that of its placement needs its rows again."""
        fresh = await find_pin(self.core, self.cid)
        if fresh is not None:
            rows = assigned(fresh, _NONE, desired_of(fresh, self.run.peers), self.now)
            await self.core.catalog.write([*rows, *listed(fresh), look_at(self.cid, self.now)])

    def _done(self) -> list[Change]:
        """What ends its entries, but for those whose change may still be made."""
        return self._done_but([entry for entry in self.entries if may_come(entry, self.now)])

    def _done_but(self, stay: Sequence[Row]) -> list[Change]:
        self.left = stay[0]["due"] if stay else None
        ended = (entry for entry in self.entries if entry not in stay)
        return [Delete(QUEUE, (entry["slice"], entry["due"], entry["cid_bin"])) for entry in ended]
