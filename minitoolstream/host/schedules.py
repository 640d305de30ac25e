"""What runs by the clock: the reconciler, on one worker of one host at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from minitoolstream.domain.errors import MtsError
from minitoolstream.request_id import request_id

LEASE = "reconcile"
MAX_PAUSE = 60.0
log = logging.getLogger("mts.schedule")


class Schedule:
    """Runs a job again and again, as long as this worker holds the lease on it. Failures only delay it."""

    def __init__(self, core: Any, job: Callable[[Any], Awaitable[Any]], interval: float) -> None:
        self._core = core
        self._job = job
        self._interval = interval
        # Long enough for a holder to come back for it, short enough that another takes over soon.
        self._lease_seconds = max(2.0, 2 * interval)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def run(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(min(self._interval * 2**failures, max(MAX_PAUSE, self._interval)))
            request_id.set(f"{LEASE}-{secrets.token_hex(4)}")
            try:
                await self.once()
                failures = 0
            except MtsError as error:
                failures = min(failures + 1, 8)
                log.warning("%s did not run to its end: %s", LEASE, error.message)
            except Exception:
                failures = min(failures + 1, 8)
                log.exception("%s failed", LEASE)

    async def once(self) -> bool:
        """One run; False when another worker holds the lease."""
        if not await self._take_lease():
            return False
        renewal = asyncio.create_task(self._renew())
        try:
            summary = await self._job(self._core)
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal
        done = {name: count for name, count in summary.counts().items() if count}
        log.log(logging.INFO if done else logging.DEBUG, "%s ran", LEASE, extra={"fields": done})
        return True

    async def _take_lease(self) -> bool:
        held: bool = await self._core.metadata.take_lease(LEASE, self._owner, self._lease_seconds)
        return held

    async def _renew(self) -> None:
        """A lost lease does no harm: everything the reconciler does is safe to do twice."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            with contextlib.suppress(Exception):
                await self._take_lease()
