"""Nothing is deleted by a clock that may be wrong (rule 27)."""

from __future__ import annotations

import logging

from minitoolstream.services.core import Core

_log = logging.getLogger(__name__)


async def clocks_agree(core: Core) -> bool:
    """Compare Tarantool's clock with the object store's. False when they are more than five minutes apart."""
    agree, drift_ms = await core.retention.compare_clocks(await core.payloads.now_ms())
    if not agree:
        _log.warning(
            "nothing is deleted: Tarantool's clock is %.0f s ahead of the object store's; set the wrong one right",
            drift_ms / 1000,
        )
    return agree
