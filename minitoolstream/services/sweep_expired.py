"""The sweeper: messages that had their time go, and then their payloads.

Safe beside any other, at any time: each step is one transaction, and where it ended is kept in the metadata store, so
the next run, here or elsewhere, goes on there.
"""

from __future__ import annotations

import time

from minitoolstream.domain.retention import Swept
from minitoolstream.services.compare_clocks import clocks_agree
from minitoolstream.services.core import Core
from minitoolstream.services.delete_trash import delete_trash
from minitoolstream.services.pace import Pace

_AT_ONCE = 100  # extents a transaction: others wait that long


class Budget:
    """How long a run may take."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def is_spent(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


async def sweep(core: Core, seconds: float | None = None) -> Swept:
    """Expire what is due, and delete the payloads whose grace is over, for at most about so many seconds."""
    budget = Budget(seconds)
    swept = await sweep_expired(core, budget)
    if not swept.clocks_differ:
        swept.objects_deleted = await delete_trash(core, budget.is_spent)
        swept.finished = swept.finished and not await core.metadata.trash_due(1)
    return swept


async def sweep_expired(core: Core, budget: Budget | None = None) -> Swept:
    """Expire what is due, subject by subject; without a budget, to the end."""
    budget = budget or Budget(None)
    swept = Swept(clocks_differ=not await clocks_agree(core))
    pace = Pace()
    while not swept.clocks_differ and not swept.finished and not budget.is_spent():
        step = await core.retention.step(_AT_ONCE)
        swept.messages += step.messages
        swept.extents += step.rows
        swept.bytes += step.bytes
        swept.clocks_differ = step.clocks_differ
        swept.finished = not step.more and not step.clocks_differ
        core.metrics.expired(step.messages)
        if step.rows:
            await pace.rest()
    return swept
