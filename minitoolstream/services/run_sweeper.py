"""One run of the scheduled function: the settings, then every job, within a time that is not its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core
from minitoolstream.services.jobs import JOBS, Job
from minitoolstream.services.settle_in import TASKS

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SweeperRun:
    """What each job did; those that were cut off the next run goes on with."""

    done: dict[str, Mapping[str, int]] = field(default_factory=dict)
    cut_off: list[str] = field(default_factory=list)


async def run_sweeper(core: Core, seconds: float, jobs: Sequence[Job] = JOBS) -> SweeperRun:
    """What was done in at most so many seconds; two runs at once are as good as one. One that cannot run now does not
    keep the others from running, nor does one that takes long: each has an equal share of the time that is left."""
    end = time.monotonic() + seconds
    swept = SweeperRun()
    problems: list[MtsError] = []

    async def settle(core: Core) -> Mapping[str, int]:
        for task in TASKS:
            await task(core)
        return {}

    parts = [("settle", settle), *((job.name, job.run) for job in jobs)]
    for number, (name, part) in enumerate(parts):
        share = max(0.0, end - time.monotonic()) / (len(parts) - number)
        try:
            async with asyncio.timeout(share):
                swept.done[name] = await part(core)
        except TimeoutError:
            swept.cut_off.append(name)
        except MtsError as error:
            _log.warning("%s did not run to its end: %s", name, error.message)
            problems += [error] if error.retryable else []
    if problems:
        raise problems[0]
    return swept
