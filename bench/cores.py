"""A process of ours beside the stack's host, for what is measured without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bench.stack import Stack
from minitoolstream.bootstrap import open_core
from minitoolstream.config import load_settings
from minitoolstream.services.core import Core

T = TypeVar("T")


def with_core(stack: Stack, work: Callable[[Core], Awaitable[T]], **environ: str) -> T:
    """What the work answers; `environ`: settings of its own."""

    async def run() -> T:
        core = await open_core(load_settings({"MTS_HOME": str(stack.home), **environ}, cwd=stack.folder))
        try:
            return await work(core)
        finally:
            await core.close()

    return asyncio.run(run())
