"""One round of all that the catalog needs done again and again."""

from __future__ import annotations

from collections.abc import Mapping

from minitoolstream.services.core import Core
from minitoolstream.services.expire_pins import expire_pins
from minitoolstream.services.follow_subjects import follow_subjects
from minitoolstream.services.reconcile_copies import reconcile_copies
from minitoolstream.services.run_batches import run_batches


async def tend_catalog(core: Core) -> Mapping[str, int]:
    """Nothing where there are no peers: then there is nothing to keep."""
    if not core.peers.peers():
        return {}
    held, let_go = await follow_subjects(core)
    expired = await expire_pins(core)
    batched = await run_batches(core)
    return {
        **(await reconcile_copies(core)).counts(),
        "expired": expired,
        "batched": batched,
        "held": held,
        "let_go": let_go,
    }
