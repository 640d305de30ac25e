"""A large object in pieces: the next one is read while one is written elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from minitoolstream.domain.limits import MAX_PARTS

Read = Callable[[int, int], Coroutine[Any, Any, bytes]]


def part_length(size: int, usual: int) -> int:
    """How long parts must be so that there are not too many of them."""
    return max(usual, -(-size // MAX_PARTS))


async def read_ahead(read: Read, size: int, length: int) -> AsyncGenerator[bytes, None]:
    """`read(first, last)` of each piece in turn. Two are held at once. Nothing is read any more behind its end, so
    close it: `async with aclosing(read_ahead(...))`."""
    bounds = [(first, min(first + length, size) - 1) for first in range(0, size, length)]
    coming = asyncio.create_task(read(*bounds[0]))
    try:
        for bound in bounds[1:]:
            piece = await coming
            coming = asyncio.create_task(read(*bound))
            yield piece
            del piece  # it would be the third
        yield await coming
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
