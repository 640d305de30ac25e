"""Keep the ceiling of sequences above what is given, in the bucket first (rule 28); and see when the bucket knows more
than the metadata store, which then is one that was lost and set up anew, or put back from an old copy."""

from __future__ import annotations

import contextlib

from minitoolstream.domain.ceiling import BUCKET_IS_AHEAD, STEP, ceiling_name, highest, lower_than, next_ceiling
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.journal import segments_of
from minitoolstream.domain.keys import CEILING_PREFIX, JOURNAL_PREFIX
from minitoolstream.ports import JournalStore, PayloadStore, Position
from minitoolstream.services.put_once import put_once

_MOST = 1000


class Ceiling:
    """The bucket is looked at once by each process, and then when the ceiling comes near, or when the store has gone
    back: its disk was put back under hosts that run."""

    def __init__(self, journal: JournalStore, payloads: PayloadStore) -> None:
        self._journal = journal
        self._payloads = payloads
        self._looked = False
        self._seen: Position | None = None

    async def keep(self) -> int:
        """The ceiling. MtsError `unavailable` when nothing may be published: the store must be restored, or a part that
        is needed to raise the ceiling is down. Safe on any number of hosts at once."""
        position = await self._journal.position()
        _must_be_open(position)
        if self._looked and not _is_near(position) and not _has_gone_back(position, self._seen):
            self._seen = position
            return position.top
        names = [found.name for found in await self._payloads.list_after(CEILING_PREFIX, "", _MOST)]
        segments = segments_of(
            found.name
            for found in await self._payloads.list_after(
                JOURNAL_PREFIX, f"{JOURNAL_PREFIX}{position.number:020}~", _MOST
            )
        )
        # Asked again behind the lists: what another host has written by then was planned before.
        position = await self._journal.position()
        newest = segments[-1].number if segments else 0
        if highest(names) > position.planned or newest > position.number:
            await self._journal.need_recovery(
                f"the bucket knows of sequences up to {highest(names)} and of journal segment {newest}, "
                f"Tarantool of {position.planned} and {position.number}"
            )
            position = await self._journal.position()
        _must_be_open(position)
        top = await self._raise(position, names)
        self._looked, self._seen = True, position
        return top

    async def keep_if_possible(self) -> None:
        """For a Lambda, which may be the first to meet a new Tarantool; where this fails, so will what is asked."""
        with contextlib.suppress(MtsError):
            await self.keep()

    async def _raise(self, position: Position, names: list[str]) -> int:
        target = next_ceiling(position.given) if _is_near(position) else position.top
        if highest(names) < target:
            await announce(self._journal, self._payloads, target)
        top = await self._journal.raise_ceiling(target)
        if lower := lower_than(names, highest([*names, ceiling_name(target)])):
            await self._payloads.delete_many(lower)
        return top


async def announce(journal: JournalStore, payloads: PayloadStore, target: int) -> None:
    """Tell the bucket of a ceiling. Planned before, so that this store is known as the one that wrote it."""
    await journal.plan_ceiling(target)
    await put_once(payloads, ceiling_name(target), b"", content_type="application/octet-stream")


def _is_near(position: Position) -> bool:
    return position.top - position.given < STEP // 2


def _has_gone_back(position: Position, seen: Position | None) -> bool:
    return seen is not None and (
        position.given < seen.given or position.planned < seen.planned or position.number < seen.number
    )


def _must_be_open(position: Position) -> None:
    if position.recovery == "replaying":
        raise unavailable("a restore is under way: nothing is published before it has ended")
    if position.recovery == "importing":
        raise unavailable("an import is under way: nothing is published before it has ended")
    if position.recovery == "needed":
        raise unavailable(
            f"{BUCKET_IS_AHEAD}, so nothing is published: run `mts restore`, or `mts rebuild`",
            reason=position.recovery_reason,
        )
