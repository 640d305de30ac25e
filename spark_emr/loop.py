"""Asynchronous code from ordinary code: on the driver, where a notebook may run a loop already, and in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns. Runs in a thread of its own, so that a loop of the caller's is no obstacle."""
    with ThreadPoolExecutor(1, thread_name_prefix="mts") as thread:
        return thread.submit(asyncio.run, work).result()


def iterate(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """Its items one by one; what runs beside them goes on only while the caller waits for the next."""
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            runner.run(source.aclose())


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
