"""A reader's place in a subject: what it reads next, alone or together with all who stand at the same place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minitoolstream.domain.consumer import Share, Start
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import Page, Selection, read_page, resolve_start, signed_page
from minitoolstream.services.watch_changes import durable_key, subject_key


@dataclass(frozen=True, slots=True)
class Reader:
    """Whose position counts: a durable's, or, with a session, that of its partitions."""

    durable: str
    session: tuple[str, int] | None = None
    after_by_partition: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A page; for a durable also its position and fence, for a session also its partitions."""

    page: Page
    position: int | None = None
    fence: int | None = None
    shares: tuple[Share, ...] | None = None


class Place:
    """Where one reader stands. A durable's position is never moved by reading (rule 17)."""

    def __init__(
        self, core: Core, selection: Selection, reader: Reader | None, start: int | None, fence: int | None = None
    ) -> None:
        self._core = core
        self._selection = selection
        self._reader = reader
        self._start = start
        self._subject_key = subject_key(selection.subject)
        self._durable_key = durable_key(selection.subject, reader.durable) if reader else None
        self._read_at_version: int | None = None
        self._fence = fence
        self._position: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What to watch for."""
        return (self._subject_key, self._durable_key) if self._durable_key else (self._subject_key,)

    @property
    def next_sequence(self) -> int:
        """Where the next page begins; 0 before a durable's first one."""
        return self._start or 0

    @property
    def fence(self) -> int | None:
        """Of the durable, as it was when `next_sequence` was found."""
        return self._fence

    async def read(self, *, shared: bool = True) -> Reading:
        """The next page, empty when there is none yet. Watch `keys` before, to know when to read again.

        `shared`: others who read the same now may have begun a moment ago. Not for one who does not wait: it could
        miss what it has published itself.
        """
        if self._reader is not None and (self._reader.session or self._was_moved()):
            return await self._read_durable(self._reader)
        assert self._start is not None
        selection, start = self._selection, self._start
        if shared:
            # The version keeps a reader from joining a flight that began before a change it has been told of.
            key = (selection, start, self._core.watcher.version(self._subject_key))
            page = await self._core.flights.run(key, lambda: read_page(self._core, selection, start))
        else:
            page = await read_page(self._core, selection, start)
        self._start = page.next_sequence
        return self._counted(Reading(page, self._position, self._fence))

    def _was_moved(self) -> bool:
        """Not read yet, or somebody may have moved the durable since."""
        assert self._durable_key is not None
        return self._read_at_version != self._core.watcher.version(self._durable_key)

    async def _read_durable(self, reader: Reader) -> Reading:
        assert self._durable_key is not None
        version = self._core.watcher.version(self._durable_key)
        asked = self._selection
        found = await self._core.deliveries.read(
            asked.subject,
            reader.durable,
            asked.limit,
            after=None if self._start is None else (self._start - 1, self._fence),
            whole=asked.whole,
            session=reader.session,
            after_by_partition=reader.after_by_partition,
        )
        self._fence, self._position = found.fence, found.position
        self._start = found.page.next_sequence
        self._selection = replace(asked, conditions=found.filter)
        if reader.session:
            # A filter may end a page before its end: what was looked at of these partitions is behind the session.
            done = tuple((share.partition, found.page.next_sequence - 1, share.fence) for share in found.shares)
            self._reader = replace(reader, after_by_partition=done)
        page = await signed_page(self._core, found.page, asked)
        # Partitions may be ahead of the position: what of them is acked only the durable knows, up to the end.
        self._read_at_version = None if page.more else version
        return self._counted(Reading(page, found.position, found.fence, found.shares if reader.session else None))

    def _counted(self, reading: Reading) -> Reading:
        self._core.metrics.delivered(reading.page.count)
        return reading


async def place_of(core: Core, selection: Selection, reader: Reader | None, start: Start | None) -> Place:
    """Without a start, a durable is read from its position; everyone else says where to begin."""
    if start is None:
        assert reader is not None
        return Place(core, selection, reader, None)
    return Place(core, selection, reader, max(await resolve_start(core, selection.subject, start), 1))


async def place_to_follow(
    core: Core,
    selection: Selection,
    reader: Reader | None,
    start: Start | None,
    seen: tuple[int, int | None] | None = None,
) -> Place:
    """For a stream: what is wrong with the durable is said before it begins, and where it begins is known.

    `seen`: the last message that the reader had of the stream before, and the fence it came with, if any; void when
    the durable was moved since.
    """
    if reader is None:
        return await place_of(core, selection, None, start if seen is None else seen[0] + 1)
    now = await core.deliveries.read(selection.subject, reader.durable, 1)
    if seen is not None:
        start = seen[0] + 1 if seen[1] in {None, now.fence} else None
    found = now.position + 1 if start is None else await resolve_start(core, selection.subject, start)
    return Place(core, selection, reader, max(found, 1), now.fence)
