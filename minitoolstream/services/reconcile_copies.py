"""The reconciler of copies: what is due in the slices that this worker could claim, some at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Container, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from minitoolstream.domain.catalog_tables import CLAIMS, PERFORMANCE, PINS, PLACEMENTS, QUEUE, STATS
from minitoolstream.domain.cid import read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import day_of, pin_of
from minitoolstream.ports.catalog import Key, Put, Row
from minitoolstream.services.claims import SECONDS, give_up_claim, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.due_windows import Seen, Window, is_whole, looked_at, read_seen, so_far, windows
from minitoolstream.services.place_copies import ALL, SLICES, live_peers
from minitoolstream.services.settle_copies import Content, Counts, Run
from minitoolstream.services.watch_peers import watch_peers
from minitoolstream.services.write_together import Together

AT_ONCE = 16
"""Copies on their way. Each holds up to 8 MiB, a large one twice as much."""
_LARGE_AT_ONCE = 8
_READ_AT_ONCE = 4
"""Pages: more would wake more of the engine's threads, not make it faster."""
_IN_A_SLICE = 128
"""Contents that are under way at once: rows wait for the engine, copies for the stores, and neither takes the other's
place."""
_PAGE = 64
"""Entries of a slice: the next are read while these are copied, so the first should not be long in coming."""


@dataclass(slots=True)
class _Share:
    """Slices that are ours until `ends`, by the steady clock, and how far each is."""

    core: Core
    holder: str
    slices: list[int] = field(default_factory=list)
    ends: float = 0.0
    seen: dict[int, Seen] = field(default_factory=dict)

    async def take(self) -> None:
        """Of slices in which something is due; then, those that it has, for longer. What has lapsed is given up for
        good: another may have had it since, and what was read before is not so any more."""
        if self.slices and time.monotonic() >= self.ends:
            self.slices = []
            return
        wanted = self.slices or await self._due()
        began = time.monotonic()
        taken = await asyncio.gather(
            *(take_claim(self.core, _name(number), self.holder, self._place(number)) for number in wanted)
        )
        self.slices = [number for number, got in zip(wanted, taken, strict=True) if got]
        self.ends = began + SECONDS

    async def _due(self) -> list[int]:
        claims = await self.core.catalog.get_many(CLAIMS, [(_name(number),) for number in range(SLICES)])
        seen = [read_seen(row["place"] if row else None) for row in claims]
        now = self.core.wall()

        async def is_due(number: int) -> bool:
            if is_whole(seen[number], now):
                return True
            ((begin, end),) = windows(seen[number], now)
            return bool(await self.core.catalog.page(QUEUE, (number,), 1, after=(begin,), until=(end,)))

        due = await asyncio.gather(*map(is_due, range(SLICES)))
        self.seen = {number: seen[number] for number in range(SLICES) if due[number]}
        return list(self.seen)

    def _place(self, number: int) -> str | None:
        return str(self.seen[number]) if number in self.seen else None

    async def keep(self) -> None:
        """What is another's by now is not taken again: its contents were read before."""
        while self.slices:
            await asyncio.sleep(SECONDS / 4)
            with contextlib.suppress(MtsError):  # then it ends, and nothing is removed any more
                await self.take()

    async def give_up(self) -> None:
        await asyncio.gather(
            *(give_up_claim(self.core, _name(number), self.holder, self._place(number)) for number in self.slices)
        )

    def has(self, number: int, seconds: float = 0) -> bool:
        """And still will have `seconds` from now."""
        return number in self.slices and self.ends - time.monotonic() > seconds


def _name(number: int) -> str:
    return f"slice/{number}"


@contextlib.asynccontextmanager
async def _claimed(core: Core) -> AsyncIterator[_Share]:
    share = _Share(core, secrets.token_hex(8))
    await share.take()
    keeping = asyncio.create_task(share.keep())
    try:
        yield share
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await share.give_up()


async def reconcile_copies(core: Core) -> Counts:
    """All that is due now. Any number of these may run at once: each content is one's at a time."""
    if not core.peers.peers():
        return Counts()
    began = time.monotonic()
    await watch_peers(core)
    peers = await live_peers(core)
    async with _claimed(core) as share, Together(core.catalog) as writing:
        large = asyncio.Semaphore(_LARGE_AT_ONCE)
        run = Run(core, peers, share.has, writing, asyncio.Semaphore(AT_ONCE), large)
        reading = asyncio.Semaphore(_READ_AT_ONCE)
        slices = (_slice(share, number, run, reading) for number in list(share.slices))
        # The claim is kept until all have ended, also when one fails; and what was done counts.
        ended = await asyncio.gather(*slices, return_exceptions=True)
    try:
        await _note(core, run.counts, time.monotonic() - began)
    finally:
        problem = next(filter(None, ended), None)
        if problem is not None:
            raise _first_of(problem)
    return run.counts


def _first_of(problem: BaseException) -> BaseException:
    """The first failure of a slice: the others followed from it."""
    return _first_of(problem.exceptions[0]) if isinstance(problem, BaseExceptionGroup) else problem


async def _slice(share: _Share, number: int, run: Run, reading: asyncio.Semaphore) -> None:
    """Page by page: rows of the next are read and its copies begun while contents of those before are still written."""
    now, seen = share.core.wall(), share.seen[number]
    left = now  # the earliest entry that is to be met again, if there is any
    under_way: dict[bytes, datetime] = {}
    room = asyncio.Semaphore(_IN_A_SLICE)

    async def settle(content: Content) -> None:
        nonlocal left
        try:
            if share.has(number):
                await content.settle()
        finally:
            del under_way[content.cid.binary]
            left = min(left, content.left or left)
            room.release()

    async with asyncio.TaskGroup() as running:
        async for entries in _pages(run, number, windows(seen, now), reading):
            # One that is under way already is met by the next run.
            left = min([left, *(entry["due"] for entry in entries if entry["cid_bin"] in under_way)])
            async with reading:
                page = await _contents(run, _by_content(entries, under_way))
            if not share.has(number):
                return
            steps = zip(*(content.begin() for content in page), strict=True)
            await run.writing.write(*(list(chain(*step)) for step in steps))
            for content in page:
                await room.acquire()
                under_way[content.cid.binary] = content.entries[0]["due"]
                running.create_task(settle(content))
            share.seen[number] = so_far(seen, min([left, entries[-1]["due"], *under_way.values()]), now)
    if share.has(number):
        share.seen[number] = looked_at(seen, left, now)


async def _pages(
    run: Run, number: int, spans: Sequence[Window], reading: asyncio.Semaphore
) -> AsyncIterator[list[Row]]:
    """Entries of a slice that are due."""
    for begin, end in spans:
        after: Key = (begin,)
        while after:
            await run.writing.until_next()
            async with reading:
                entries = await run.core.catalog.page(QUEUE, (number,), _PAGE, after=after, until=(end,))
            if entries:
                yield entries
            after = (entries[-1]["due"], entries[-1]["cid_bin"]) if len(entries) == _PAGE else ()


def _by_content(entries: list[Row], under_way: Container[bytes]) -> dict[bytes, list[Row]]:
    """A content that was queued twice is settled once: its rows are read behind all of its entries."""
    found: dict[bytes, list[Row]] = {}
    for entry in entries:
        if entry["cid_bin"] not in under_way:
            found.setdefault(entry["cid_bin"], []).append(entry)
    return found


async def _contents(run: Run, due: dict[bytes, list[Row]]) -> list[Content]:
    """With their rows as they are now."""
    cids = [read_binary(binary) for binary in due]
    keys = [cid.key for cid in cids]
    pins, placements = await asyncio.gather(
        run.core.catalog.get_many(PINS, keys), run.core.catalog.get_many(PLACEMENTS, keys)
    )
    now = run.core.wall()
    return [
        Content(run, cid, entries, pin_of(pin) if pin else None, placement or {}, now)
        for cid, entries, pin, placement in zip(cids, due.values(), pins, placements, strict=True)
    ]


async def _note(core: Core, counts: Counts, seconds: float) -> None:
    if not counts.copied and not counts.removed and not any(counts.by_peer.values()):
        return
    for name, amount in (("copied", counts.copied), ("removed", counts.removed), ("copied_bytes", counts.bytes)):
        await core.catalog.add(STATS, (ALL, name), {"value": amount})
    for peer, amount in counts.by_peer.items():
        await core.catalog.add(STATS, (f"peer/{peer}", "bytes"), {"value": amount})
    now = core.wall()
    row = {"metric": "copies_per_second", "day": day_of(now), "at": now, "value": counts.copied / max(seconds, 0.001)}
    await core.catalog.write([Put(PERFORMANCE, row)])
