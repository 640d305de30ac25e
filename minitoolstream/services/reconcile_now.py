"""The reconciler for whoever will not wait for its schedule, with the ticks that run beside it there."""

from __future__ import annotations

from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.reconcile_uploads import reconcile
from minitoolstream.services.run_ticks import run_ticks


async def reconcile_now(core: Core) -> dict[str, int]:
    """What is due by the clock, then the reconciler, whatever became of the other. Safe beside any other run."""
    counts: dict[str, int] = {}
    problems = []
    try:
        counts["ticked"] = sum((await run_ticks(core)).values())
    except MtsError as error:
        problems.append(error)
    try:
        counts |= (await reconcile(core)).counts()
    except MtsError as error:
        problems.append(error)
    if problems:
        raise problems[0]
    return counts
