"""Whether the catalog's rows fit each other, and with `deep` whether copies are where rows say; mended on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from minitoolstream.domain.catalog_tables import BY_OWNER, BY_PEER, PINS, PLACEMENTS, REFS, STATS, TTL_QUEUE, Table
from minitoolstream.domain.cid import Cid, read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import NOBODY, PINNED, Pin, day_of, pin_of, ttl_bucket
from minitoolstream.domain.placement import Peer
from minitoolstream.ports.catalog import Change, Delete, Put, Row
from minitoolstream.services.copy_content import key_of
from minitoolstream.services.core import Core
from minitoolstream.services.find_strays import adopt, find_strays
from minitoolstream.services.follow_subjects import begin_of, copies_of, hold_again, is_followed
from minitoolstream.services.patience import Patience
from minitoolstream.services.pin_holders import find_pin
from minitoolstream.services.place_copies import desired_of, expires, listed, live_peers, look_at

_PAGE = 500
_MOST = 1000
"""Findings that are listed; all are counted."""
_UNDER_WAY = timedelta(seconds=60)
"""What changed so lately may be between two of its writes."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    cid: str
    about: str = ""


@dataclass(slots=True)
class CatalogReport:
    pins: int = 0
    placements: int = 0
    copies: int = 0
    findings: int = 0
    mended: int = 0
    found: list[Finding] = field(default_factory=list)


class _Check:
    def __init__(self, core: Core, *, mend: bool, deep: bool) -> None:
        self._core = core
        self._mend = mend
        self._deep = deep
        self._now = core.wall()
        self._peers: list[Peer] = []
        self._patience = Patience()
        self.report = CatalogReport()

    async def run(self) -> CatalogReport:
        self._peers = await live_peers(self._core)
        async for rows in _all(self._core, PINS):
            placements = await self._core.catalog.get_many(PLACEMENTS, [_key(row) for row in rows])
            for row, placement in zip(rows, placements, strict=True):
                self.report.pins += 1
                pin = pin_of(row)
                if self._old(pin.updated_at):
                    await self._pin(pin, placement)
                elif placement is not None and placement["failed"]:  # not under way: it was tried
                    await self._drift(pin, placement)
                if self._deep and placement is not None and not pin.ended:
                    await self._copies_of(pin, placement)
        async for rows in _all(self._core, PLACEMENTS):
            pins = await self._core.catalog.get_many(PINS, [_key(row) for row in rows])
            for row, there in zip(rows, pins, strict=True):
                self.report.placements += 1
                if there is None and self._old(row["updated_at"]):
                    cid = read_binary(row["cid_bin"])
                    await self._tell("placement without a pin", cid, [self._look(cid)])
        async for rows in _all(self._core, BY_PEER):
            placements = await self._core.catalog.get_many(PLACEMENTS, [_key(row) for row in rows])
            for row, placement in zip(rows, placements, strict=True):
                await self._by_peer(row, placement)
        async for rows in _all(self._core, BY_OWNER):
            await self._lists(rows)
        async for rows in _all(self._core, REFS):
            await self._refs(rows)
        await self._subjects()
        if self._deep:
            await self._strays()
        return self.report

    async def _strays(self) -> None:
        for peer in (one.id for one in self._core.peers.peers()):
            try:
                async for cid in find_strays(self._core, peer):
                    await self._tell("copy that no row names", cid, adopt(self._core, cid, peer), peer)
            except MtsError as error:
                await self._tell("peer not reached", None, [], f"{peer}: {error.message}")

    async def _subjects(self) -> None:
        """In a database that is new, or came back from a backup, nobody has noted them."""
        after, more = "", True
        while more:
            found, more = await self._core.metadata.subjects(after, _PAGE, "")
            for subject in (row["subject"] for row in found):
                after = subject
                if await copies_of(self._core, subject) and not await is_followed(self._core, subject):
                    await self._tell(
                        "asks for copies, and is not followed", None, [begin_of(self._core, subject)], subject
                    )

    def _old(self, moment: datetime | None) -> bool:
        return moment is None or self._now - moment > _UNDER_WAY

    def _look(self, cid: Cid) -> Put:
        """Due from now, not from when the check began: entries that come late are met late."""
        return look_at(cid, self._core.wall())

    async def _tell(self, kind: str, cid: Cid | None, mend: list[Change], about: str = "") -> None:
        self.report.findings += 1
        if len(self.report.found) < _MOST:
            self.report.found.append(Finding(kind, cid.text if cid else "", about))
        if self._mend and mend:
            await self._core.catalog.write(mend)
            self.report.mended += 1

    async def _pin(self, pin: Pin, placement: Row | None) -> None:
        look: list[Change] = [self._look(pin.cid)]
        if pin.ended:
            await self._tell("unpinned, and still there", pin.cid, look)
            return
        if placement is None:
            await self._tell("pin without a placement", pin.cid, look)
            return
        wanted = desired_of(pin, self._peers, placement["actual"])
        if placement["desired"] != wanted:
            about = f"wanted {_names(placement['desired'])}, to be wanted {_names(wanted)}"
            await self._tell("not wanted where it should be", pin.cid, look, about)
        else:
            await self._drift(pin, placement)
        await self._rows_of(pin, placement)

    async def _drift(self, pin: Pin, placement: Row) -> None:
        desired, actual = placement["desired"], placement["actual"]
        look: list[Change] = [self._look(pin.cid)]
        if len(desired) < pin.rf:
            about = f"{len(actual)} of {pin.rf} copies: other peers are lost, full, or not of its zones"
            await self._tell("too few peers", pin.cid, [], about)  # a peer that comes has them looked at
        elif desired != actual or placement["in_progress"]:
            about = f"wanted {_names(desired)}, there {_names(actual)}"
            await self._tell("drift", pin.cid, look, about)

    async def _rows_of(self, pin: Pin, placement: Row) -> None:
        keys = [(peer, *pin.key) for peer in sorted(placement["actual"])]
        for key, row in zip(keys, await self._core.catalog.get_many(BY_PEER, keys), strict=True):
            if row is None or row["state"] != PINNED:
                names = dict(zip(BY_PEER.key, key, strict=True))
                state = {"state": PINNED, "last_seen": self._now, "pin_size": placement["size"]}
                await self._tell("not in its peer's list", pin.cid, [Put(BY_PEER, {**names, **state})], key[0])
        entry = (pin.owner, day_of(pin.created_at), pin.created_at, pin.cid.binary)
        if await self._core.catalog.get(BY_OWNER, entry) is None:
            await self._tell("not in its owner's list", pin.cid, listed(pin), pin.owner)
        if pin.expires_at is not None:
            place = (ttl_bucket(pin.expires_at), pin.expires_at, pin.cid.binary)
            queued = await self._core.catalog.get(TTL_QUEUE, place) is not None
            if not queued and await find_pin(self._core, pin.cid) == pin:  # it may have ended meanwhile
                await self._tell(
                    "not in the queue of its end", pin.cid, [expires(pin.cid, pin.expires_at, self._core.wall())]
                )

    async def _copies_of(self, pin: Pin, placement: Row) -> None:
        """A copy is counted after it is there, and no more before it goes: one that is missing was lost."""
        known = {peer.id for peer in self._core.peers.peers()}
        for peer in sorted(placement["actual"] & known):
            self.report.copies += 1
            try:
                self._patience.check(peer)
                there = await self._core.peers.payloads(peer).find(key_of(pin.cid))
                self._patience.answered(peer)
            except MtsError as error:
                self._patience.failed(peer, error)
                await self._tell("peer not reached", pin.cid, [], f"{peer}: {error.message}")
                continue
            fits = there is not None and placement["size"] in (None, there.size)
            if not fits and await self._still_counted(pin, peer):
                row = {**pin.cid.columns, "drift_detected": True}
                lost = Put(PLACEMENTS, row, minus={"actual": frozenset({peer})})
                await self._tell("copy missing", pin.cid, [lost, self._look(pin.cid)], peer)
                if self._mend and placement["size"]:
                    await self._core.catalog.add(STATS, (f"peer/{peer}", "bytes"), {"value": -placement["size"]})

    async def _still_counted(self, pin: Pin, peer: str) -> bool:
        placement = await self._core.catalog.get(PLACEMENTS, pin.key)
        return placement is not None and peer in placement["actual"]

    async def _by_peer(self, row: Row, placement: Row | None) -> None:
        """A row without a placement; one of a peer that has nothing to do with it."""
        known = placement is not None and row["peer_id"] in (
            placement["desired"] | placement["actual"] | placement["in_progress"] | placement["failed"]
        )
        if not known and self._old(row["last_seen"]):
            key = (row["peer_id"], row["mh_prefix"], row["cid_bin"])
            await self._tell(
                "in the list of a peer that has it not", read_binary(row["cid_bin"]), [Delete(BY_PEER, key)], key[0]
            )

    async def _lists(self, rows: list[Row]) -> None:
        cids = [read_binary(row["cid_bin"]) for row in rows]
        pins = await self._core.catalog.get_many(PINS, [cid.key for cid in cids])
        for row, cid, there in zip(rows, cids, pins, strict=True):
            fits = there is not None and (there["owner"], there["created_at"]) == (row["owner"], row["created_at"])
            if not fits and self._old(row["created_at"]):
                key = (row["owner"], row["day"], row["created_at"], row["cid_bin"])
                await self._tell("in the list of one who has it not", cid, [Delete(BY_OWNER, key)], row["owner"])

    async def _refs(self, rows: list[Row]) -> None:
        for row in rows:
            cid = read_binary(row["cid_bin"])
            pin = await find_pin(self._core, cid)
            if (pin is None or (pin.ended and pin.owner == NOBODY)) and self._old(row["created_at"]):
                await self._tell("held by a message, and not pinned", cid, [], row["ref"])
                if self._mend:
                    await hold_again(self._core, cid, row["ref"])
                    self.report.mended += 1


async def check_catalog(core: Core, *, mend: bool = False, deep: bool = False) -> CatalogReport:
    """What changes meanwhile is left out."""
    return await _Check(core, mend=mend, deep=deep).run()


async def _all(core: Core, table: Table) -> AsyncIterator[list[Row]]:
    cursor: str | None = None
    while True:
        rows, cursor = await core.catalog.walk(table, cursor, _PAGE)
        if rows:
            yield rows
        if cursor is None:
            return


def _key(row: Row) -> tuple[int, bytes]:
    return row["mh_prefix"], row["cid_bin"]


def _names(peers: frozenset[str]) -> str:
    return ", ".join(sorted(peers)) or "none"
