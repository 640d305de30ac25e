"""What is done by the clock and needs Tarantool alone: one list, each duty for itself.

The reconciler, which asks the object store, runs beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.manage_subjects import clear_deleted, forget_idle, split_busy
from minitoolstream.services.pace import Pace

_log = logging.getLogger(__name__)
_AT_ONCE = 500
_MOST_ROUNDS = 100

Duty = Callable[[Core], Awaitable[int]]
"""Does some of what is due and says how much; 0 when nothing is left."""


async def tick_consumers(core: Core) -> int:
    """Sessions that ended without a word, and messages whose tries are used up."""
    return await core.deliveries.tick(_AT_ONCE)


async def end_transactions(core: Core) -> int:
    """Transactions that nobody ended, and outcomes of yesterday."""
    return await core.transactions.tick(_AT_ONCE)


DUTIES: dict[str, Duty] = {
    "consumers": tick_consumers,
    "transactions": end_transactions,
    "splits": split_busy,
    "purged": clear_deleted,
    "forgotten": forget_idle,
}


async def run_ticks(core: Core) -> dict[str, int]:
    """Every duty in turns until none has anything left to do, so that much of one does not hold up the others; one that
    fails does not either. What is left after many rounds is done the next time."""
    done = dict.fromkeys(DUTIES, 0)
    duties = dict(DUTIES)
    problems: list[MtsError] = []
    pace = Pace()
    for _ in range(_MOST_ROUNDS):
        before = sum(done.values())
        for name, duty in list(duties.items()):
            try:
                done[name] += await duty(core)
            except MtsError as error:
                _log.warning("%s did not run to its end: %s", name, error.message)
                problems.append(error)
                del duties[name]
        if sum(done.values()) == before:
            break
        await pace.rest()
    if problems:
        raise problems[0]
    return done
