"""Asynchronous code from ordinary code: on the driver, where a notebook may run a loop already, and in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns. Runs in a thread of its own, so that a loop of the caller's is no obstacle."""
    with ThreadPoolExecutor(1, thread_name_prefix="mts") as thread:
        return thread.submit(asyncio.run, work).result()


def iterate(source: AsyncGenerator[T, None]) -> Generator[T]:
    """Its items one by one; what runs beside them goes on only while the caller waits for the next. Who does not take
    all of them closes it.

    Not by `asyncio.Runner`: for each run it sets a handler for signals, and Python writes down the whole last result in
    an error text that nobody sees.
    """
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(_next(source))
            except StopAsyncIteration:
                return
    finally:
        try:
            loop.run_until_complete(source.aclose())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
