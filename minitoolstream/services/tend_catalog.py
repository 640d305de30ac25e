"""What the catalog needs done again and again: duties that have claims of their own and do not wait for each other."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from minitoolstream.services.core import Core
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.follow_subjects import follow_subjects
from minitoolstream.services.forget_deleted import forget_deleted
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.run_batches import run_batches

_log = logging.getLogger(__name__)
Duty = Callable[[Core], Awaitable[Mapping[str, int]]]


def _where_there_are_peers(duty: Duty) -> Duty:
    """Else there is nothing to keep."""

    async def tend(core: Core) -> Mapping[str, int]:
        return await duty(core) if core.peers.peers() else {}

    return tend


async def _follow(core: Core) -> Mapping[str, int]:
    held, let_go = await follow_subjects(core)
    return {"held": held, "let_go": let_go}


async def _forget(core: Core) -> Mapping[str, int]:
    return {"let_go": await forget_deleted(core)}


async def _expire(core: Core) -> Mapping[str, int]:
    return {"expired": await expire_pins(core)}


async def _batch(core: Core) -> Mapping[str, int]:
    return {"batched": await run_batches(core)}


async def _reconcile(core: Core) -> Mapping[str, int]:
    return (await reconcile_copies(core)).counts()


_ALL: Mapping[str, Duty] = {
    "follow": _follow,
    "forget": _forget,
    "unpin": _expire,
    "batches": _batch,
    "copies": _reconcile,
}
DUTIES: Mapping[str, Duty] = {name: _where_there_are_peers(duty) for name, duty in _ALL.items()}
"""Each ends by itself, and is safe to run many times at once."""


async def tend_catalog(core: Core) -> Mapping[str, int]:
    """One round of all of them, by which what was published is copied. What fails holds up nothing else; the first
    failure is raised at the end."""
    done: Counter[str] = Counter()
    failures: list[Exception] = []
    for name, duty in DUTIES.items():
        try:
            done.update(await duty(core))
        except Exception as failure:
            _log.warning("%s did not run to its end: %s", name, failure)
            failures.append(failure)
    if failures:
        raise failures[0]
    return done
