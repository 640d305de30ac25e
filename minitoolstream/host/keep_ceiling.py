"""Every worker sees to it that sequences may be given (rule 28)."""

from __future__ import annotations

import asyncio
import logging

from minitoolstream.domain.errors import MtsError
from minitoolstream.services.core import Core

FIRST_TRY_SECONDS = 2.0
PAUSE_SECONDS = 5.0
AGAIN_SECONDS = 0.5
log = logging.getLogger("mts.ceiling")


async def open_sequences(core: Core) -> None:
    """Before the first request: on a new Tarantool it would be refused. Parts that are down are waited for later."""
    try:
        await asyncio.wait_for(core.ceiling.keep(), FIRST_TRY_SECONDS)
    except (MtsError, TimeoutError) as error:
        log.warning("sequences cannot be given yet: %s", error)


async def keep_ceiling(core: Core) -> None:
    """Half of it is used up in a minute at best, so looking every few seconds is early enough."""
    told = ""
    while True:
        pause = PAUSE_SECONDS
        try:
            await core.ceiling.keep()
            told = ""
        except MtsError as error:
            pause = AGAIN_SECONDS
            if error.message != told:
                told = error.message
                log.warning("sequences cannot be given: %s", told)
        except Exception:
            log.exception("the ceiling cannot be kept")
        await asyncio.sleep(pause)
