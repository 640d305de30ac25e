"""Streams that tell of news for as long as a reader stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.services.core import Core

_RESTART = 10.0
_LOOK_AGAIN = 0.2
News = TypeVar("News")


async def follow(core: Core, begin: Callable[[], AsyncGenerator[News, None]]) -> AsyncGenerator[News, None]:
    """What `begin` gives, until the server stops: MtsError `unavailable`. A part that is started again takes a moment;
    nothing is lost meanwhile, and it is begun anew."""
    away_until: float | None = None
    while not core.draining.is_set():
        try:
            async with aclosing(begin()) as news:
                async for one in news:
                    away_until = None
                    yield one
        except MtsError as error:
            now = asyncio.get_running_loop().time()
            away_until = away_until or now + _RESTART
            if not error.retryable or now > away_until:
                raise
            await asyncio.sleep(_LOOK_AGAIN)
    raise unavailable("the server stops: subscribe again")
