"""What runs by the clock: each job on one worker of one host at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket

from minitoolstream.domain.errors import MtsError
from minitoolstream.request_id import request_id
from minitoolstream.services.core import Core
from minitoolstream.services.jobs import Job

MAX_PAUSE = 60.0
log = logging.getLogger("mts.schedule")


class Schedule:
    """Runs a job again and again, as long as this worker holds the lease named like it. Failures only delay it."""

    def __init__(self, core: Core, job: Job, pause: float) -> None:
        self._core = core
        self._job = job
        self._pause = pause
        # Long enough for a holder to come back for it, short enough that another takes over soon.
        self._lease_seconds = max(2.0, 2 * pause)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def run(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(min(self._pause * 2**failures, max(MAX_PAUSE, self._pause)))
            request_id.set(f"{self._job.name}-{secrets.token_hex(4)}")
            try:
                await self.once()
                failures = 0
            except MtsError as error:
                failures = min(failures + 1, 8)
                log.warning("%s did not run to its end: %s", self._job.name, error.message)
            except Exception:
                failures = min(failures + 1, 8)
                log.exception("%s failed", self._job.name)

    async def once(self) -> bool:
        """One run; False when another worker holds the lease."""
        if not await self._take_lease():
            return False
        renewal = asyncio.create_task(self._renew())
        try:
            counts = await self._job.run(self._core)
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal
        done = {name: count for name, count in counts.items() if count}
        log.log(logging.INFO if done else logging.DEBUG, "%s ran", self._job.name, extra={"fields": done})
        return True

    async def _take_lease(self) -> bool:
        return await self._core.metadata.take_lease(self._job.name, self._owner, self._lease_seconds)

    async def _renew(self) -> None:
        """A lost lease does no harm: every job is safe to do twice."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            with contextlib.suppress(Exception):
                await self._take_lease()
