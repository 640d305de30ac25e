"""What this process knows of where messages go, so that a pack's frames lie in the order of their partitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.lanes import Lanes

_log = logging.getLogger(__name__)
_FRESH_FOR = 3.0
_SUBJECTS = 1_000


@dataclass(slots=True)
class _Known:
    lanes: Lanes | None
    heard_at: float


class LaneCache:
    """Lanes of subjects with several partitions. Nobody waits for it: it is asked behind the publishers' backs, and
    a wrong answer costs extents, not order, since the commit decides (rule 16).

    A subject whose answers all show partition 0 is never asked about.
    """

    def __init__(
        self, ask: Callable[[str], Awaitable[Lanes | None]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._now = now
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def lanes(self, subject: str) -> Lanes | None:
        """The lanes as last heard; None for a subject of one partition, or one of which nothing else is known."""
        known = self._known.get(subject)
        if known is None:
            return None
        self._known.move_to_end(subject)
        if self._now() - known.heard_at > _FRESH_FOR:
            self._refresh(subject)
        return known.lanes

    def learn(self, subject: str, partitions: Iterable[int]) -> None:
        """A commit put messages of this subject into these partitions."""
        known = self._known.get(subject)
        expected = known.lanes.partitions if known is not None and known.lanes is not None else (0,)
        if any(partition not in expected for partition in partitions):
            self._refresh(subject)

    def _refresh(self, subject: str) -> None:
        if subject not in self._asking:
            self._asking[subject] = asyncio.create_task(self._fetch(subject))

    async def _fetch(self, subject: str) -> None:
        try:
            lanes = await self._ask(subject)
        except MtsError as error:  # what is known stays in use; the next pack asks again
            _log.debug("the lanes of %s are not known: %s", subject, error.message)
            return
        finally:
            del self._asking[subject]
        if lanes is None or len(lanes.partitions) == 1:
            self._known.pop(subject, None)
            return
        self._known[subject] = _Known(lanes, self._now())
        while len(self._known) > _SUBJECTS:
            self._known.popitem(last=False)

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
