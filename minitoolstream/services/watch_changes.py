"""Whoever waits is woken by the commit: one long call a process, however many wait."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from minitoolstream.ports import MetadataStore

_log = logging.getLogger(__name__)
_LONG_CALL = 20.0
_PAUSE_AFTER_FAILURE = 0.2


def subject_key(subject: str) -> str:
    """New messages of a subject."""
    return f"/{subject}"


def durable_key(subject: str, durable: str) -> str:
    """A durable that was moved by other than an ack, or whose messages or partitions became free."""
    return f"/{subject}/{durable}"


@dataclass(slots=True)
class _Watched:
    """`version` is another one after every change, so that two looks can tell whether there was one between them."""

    version: int
    events: set[asyncio.Event] = field(default_factory=set)


class Watcher:
    """Sets the event of every waiter whose upload, subject or durable changed; all of them when changes may have been
    missed, and when the host stops: then there is nothing more to wait for."""

    def __init__(self, metadata: MetadataStore, draining: asyncio.Event) -> None:
        self._metadata = metadata
        self._draining = draining
        self._watched: dict[str, _Watched] = {}
        self._versions = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._waking: dict[str, asyncio.Task[None]] = {}

    @contextmanager
    def watch(self, *keys: str) -> Iterator[asyncio.Event]:
        """An event that is set when one of these may have changed: upload ids, or keys of subjects and durables.
        Begin to watch, then read the state."""
        changed = asyncio.Event()
        for key in keys:
            if key not in self._watched:
                self._watched[key] = _Watched(next(self._versions))
            self._watched[key].events.add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield changed
        finally:
            for key in keys:
                events = self._watched[key].events
                events.discard(changed)
                if not events:
                    del self._watched[key]

    def version(self, key: str) -> int:
        """Another one after every change, and never one that was; as long as somebody watches."""
        watched = self._watched.get(key)
        return watched.version if watched else 0

    async def _run(self) -> None:
        stopping = asyncio.create_task(self._draining.wait())
        try:
            # Looked at again after each end: somebody may have come between the last look and now.
            while self._watched and not self._draining.is_set():
                following = asyncio.create_task(self._follow())
                try:
                    await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    following.cancel()
                    await asyncio.wait((following,))
            for watched in self._watched.values():
                for changed in watched.events:
                    changed.set()
        finally:
            stopping.cancel()

    async def _follow(self) -> None:
        cursor = ("", 0)  # known to nobody: the first answer says where the changes stand, and wakes all
        while self._watched:
            try:
                changes = await self._metadata.wait_for_changes(cursor, _LONG_CALL)
            except Exception as error:  # whoever waits depends on this loop
                _log.warning("waiting for changes failed, trying again: %r", error)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                cursor = ("", 0)
                continue
            cursor = changes.cursor
            if changes.lost:
                self._wake(list(self._watched))
            else:
                self._wake(changes.upload_ids)
                self._wake(f"/{name}" for name in changes.names)

    def _wake(self, keys: Iterable[str]) -> None:
        for key in keys:
            watched = self._watched.get(key)
            if watched is not None:
                watched.version = next(self._versions)
                if len(watched.events) == 1:
                    next(iter(watched.events)).set()
                elif key not in self._waking:
                    self._waking[key] = asyncio.create_task(self._wake_in_turns(key))

    async def _wake_in_turns(self, key: str) -> None:
        """One between two turns of the loop: a thousand at once would hold up everything else. A change in the middle
        of a round is a round behind it."""
        woken_for = 0
        try:
            while (watched := self._watched.get(key)) is not None and watched.version != woken_for:
                woken_for = watched.version
                for changed in list(watched.events):
                    changed.set()
                    await asyncio.sleep(0)
        finally:
            del self._waking[key]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def woken(changed: asyncio.Event, until: float) -> bool:
    """True when the event is set before the deadline."""
    try:
        async with asyncio.timeout_at(until):
            await changed.wait()
    except TimeoutError:
        return False
    return True
