"""One round of all that the catalog needs done again and again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from minitoolstream.services.core import Core
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.follow_subjects import follow_subjects
from minitoolstream.services.forget_deleted import forget_deleted
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.run_batches import run_batches

_log = logging.getLogger(__name__)


async def tend_catalog(core: Core) -> Mapping[str, int]:
    """Nothing where there are no peers: then there is nothing to keep. What fails holds up nothing else; the first
    failure is raised at the end."""
    if not core.peers.peers():
        return {}
    done: Counter[str] = Counter()
    failures: list[Exception] = []
    for duty in (_follow, _forget, _expire, _batch, _reconcile):
        try:
            done.update(await duty(core))
        except Exception as failure:
            _log.warning("%s did not run to its end: %s", duty.__name__.strip("_"), failure)
            failures.append(failure)
    if failures:
        raise failures[0]
    return done


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
