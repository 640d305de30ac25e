"""Answers that take their time: they end when the client leaves, and a stream waits for a client that is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

T = TypeVar("T")


class DisconnectedError(Exception):
    """The client went away before its answer was complete."""


class Client(Protocol):
    def when_left(self, leave: Callable[[], None] | None) -> None:
        """Have `leave` called, once, when the client is gone; None: not any more."""

    async def write(self, piece: bytes) -> None: ...


async def until_left(work: Awaitable[T], client: Client) -> T:
    """What `work` gives; cancelled, with DisconnectedError, when the client leaves first. It runs in the task of its
    caller: thousands who wait cost one each."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    client.when_left(leave)
    try:
        return await work
    except asyncio.CancelledError:
        # Whoever stops the host cancels the task as well: that one counts.
        if has_left and task.uncancel() == 0:
            raise DisconnectedError from None
        raise
    finally:
        client.when_left(None)


async def send_stream(stream: AsyncGenerator[bytes, None], client: Client) -> None:
    """Each piece is asked for when the one before is out of our hands."""

    async def pump() -> None:
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                await client.write(piece)

    await until_left(pump(), client)
