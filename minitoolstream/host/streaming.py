"""Answers that take their time: they end when the client leaves, and a stream waits for a client that is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 0.05


class DisconnectedError(Exception):
    """The client went away before its answer was complete."""


async def until_left(work: Awaitable[T], left: Callable[[], Awaitable[None]]) -> T:
    """What `work` gives; cancelled, with DisconnectedError, when the client leaves first.

    Nobody looks at the connection before it has taken a moment: most answers are there by then.
    """
    task = asyncio.ensure_future(work)
    leaving: asyncio.Future[None] | None = None
    try:
        done, _ = await asyncio.wait((task,), timeout=AT_ONCE)
        if not done:
            leaving = asyncio.ensure_future(left())
            await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise DisconnectedError
    finally:
        ending = [one for one in (task, leaving) if one is not None and not one.done()]
        for one in ending:
            one.cancel()
        if ending:
            await asyncio.wait(ending)


async def send_stream(
    stream: AsyncGenerator[bytes, None],
    write: Callable[[bytes], Awaitable[None]],
    left: Callable[[], Awaitable[None]],
) -> None:
    """Each piece is asked for when the one before is out of our hands."""

    async def pump() -> None:
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                await write(piece)

    await until_left(pump(), left)
