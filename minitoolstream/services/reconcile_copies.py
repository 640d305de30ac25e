"""The reconciler of copies: what is due in the slices that this worker could claim, some at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import chain

from minitoolstream.domain.catalog_tables import PERFORMANCE, PINS, PLACEMENTS, QUEUE, STATS
from minitoolstream.domain.cid import read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pin import day_of, pin_of
from minitoolstream.ports.catalog import Put, Row
from minitoolstream.services.claims import SECONDS, give_up_claim, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.place_copies import ALL, SLICES, live_peers
from minitoolstream.services.settle_copies import Content, Counts, Run
from minitoolstream.services.watch_peers import watch_peers
from minitoolstream.services.write_together import Together

AT_ONCE = 16
"""Copies on their way. Each holds up to 8 MiB, a large one twice as much."""
_LARGE_AT_ONCE = 8
_CONTENTS_AT_ONCE = 256
_PAGE = 32
"""Entries of a slice: the next are read while these are copied, so the first should not be long in coming."""


@dataclass(slots=True)
class _Share:
    """Slices that are ours until `ends`, by the steady clock."""

    core: Core
    holder: str
    slices: list[int] = field(default_factory=list)
    ends: float = 0.0

    async def take(self) -> None:
        """Of slices in which something is due; then, those that it has, for longer. What has lapsed is given up for
        good: another may have had it since, and what was read before is not so any more."""
        if self.slices and time.monotonic() >= self.ends:
            self.slices = []
            return
        wanted = self.slices or await self._due()
        began = time.monotonic()
        taken = await asyncio.gather(*(take_claim(self.core, _name(number), self.holder) for number in wanted))
        self.slices = [number for number, got in zip(wanted, taken, strict=True) if got]
        self.ends = began + SECONDS

    async def _due(self) -> list[int]:
        until = (self.core.wall(),)
        firsts = await asyncio.gather(
            *(self.core.catalog.page(QUEUE, (number,), 1, until=until) for number in range(SLICES))
        )
        return [number for number, first in enumerate(firsts) if first]

    async def keep(self) -> None:
        """What is another's by now is not taken again: its contents were read before."""
        while self.slices:
            await asyncio.sleep(SECONDS / 4)
            with contextlib.suppress(MtsError):  # then it ends, and nothing is removed any more
                await self.take()

    async def give_up(self) -> None:
        await asyncio.gather(*(give_up_claim(self.core, _name(number), self.holder) for number in self.slices))

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
    # Rows wait for the engine, copies for the stores: neither takes the other's place.
    contents = asyncio.Semaphore(_CONTENTS_AT_ONCE)
    async with _claimed(core) as share, Together(core.catalog) as writing:
        large = asyncio.Semaphore(_LARGE_AT_ONCE)
        run = Run(core, peers, share.has, writing, asyncio.Semaphore(AT_ONCE), large)
        slices = (_slice(share, number, run, contents) for number in list(share.slices))
        # The claim is kept until all have ended, also when one fails; and what was done counts.
        problems = [ended for ended in await asyncio.gather(*slices, return_exceptions=True) if ended is not None]
    try:
        await _note(core, run.counts, time.monotonic() - began)
    finally:
        for problem in problems:  # the first one, whatever came behind it
            raise problem
    return run.counts


async def _slice(share: _Share, number: int, run: Run, contents: asyncio.Semaphore) -> None:
    core = share.core
    after: tuple[object, ...] = ()
    page: list[Content] = []
    running: set[asyncio.Task[None]] = set()
    due = core.wall()

    async def settle(content: Content) -> None:
        async with contents:
            if share.has(number):
                await content.settle()

    try:
        while True:
            entries = await core.catalog.page(QUEUE, (number,), _PAGE, after=after, until=(due,))
            # Their rows are read while those of the page before still change.
            fresh = _by_content(entries, {content.cid.binary for content in page})
            keys = [read_binary(some[0]["cid_bin"]).key for some in fresh]
            pins, placements = await asyncio.gather(
                core.catalog.get_many(PINS, keys), core.catalog.get_many(PLACEMENTS, keys)
            )
            await _all(running)
            page = [_content(run, *one) for one in zip(fresh, pins, placements, strict=True)]
            if not share.has(number):
                break
            placed, by_peer = zip(*(content.begin() for content in page), strict=True) if page else ((), ())
            await run.writing.write(list(chain(*placed)), list(chain(*by_peer)))
            running = {asyncio.create_task(settle(content)) for content in page}
            if len(entries) < _PAGE:
                break
            after = (entries[-1]["due"], entries[-1]["cid_bin"])
        await _all(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _content(run: Run, entries: list[Row], pin: Row | None, placement: Row | None) -> Content:
    known = pin_of(pin) if pin else None
    return Content(run, read_binary(entries[0]["cid_bin"]), entries, known, placement or {}, run.core.wall())


def _by_content(entries: list[Row], under_way: set[bytes]) -> list[list[Row]]:
    """A content that was queued twice is settled once: its rows are read behind all of its entries. One that is under
    way already is met by the next run."""
    found: dict[bytes, list[Row]] = {}
    for entry in entries:
        if entry["cid_bin"] not in under_way:
            found.setdefault(entry["cid_bin"], []).append(entry)
    return list(found.values())


async def _all(running: set[asyncio.Task[None]]) -> None:
    if running:
        await asyncio.gather(*running)


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
