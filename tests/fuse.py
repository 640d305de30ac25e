"""Kills an operation at any of its steps. A step is a call of a port, by its name: whatever an operation does to the
outside goes through one, so a step that is added later is met as well."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any


class KilledError(BaseException):
    """`kill -9` at this step."""


class Fuse:
    """Stands before ports and burns through at the n-th call of them all: before it takes effect, or after. From then
    on the process is dead: nothing that still runs reaches anything. Without a number it only writes the steps down."""

    def __init__(self, calls: int = 0, *, after: bool = False) -> None:
        self.calls = calls
        self.after = after
        self.steps: list[str] = []
        self._burnt = asyncio.Event()

    def before(self, port: object, title: str = "") -> Any:
        fuse = self

        class Fused:
            def __getattr__(self, name: str) -> Any:
                method = getattr(port, name)
                if not inspect.iscoroutinefunction(method):
                    return method

                async def call(*arguments: Any, **named: Any) -> Any:
                    number = fuse._meet(f"{title}.{name}")
                    result = await method(*arguments, **named)
                    fuse._pass(number)
                    return result

                return call

        return Fused()

    @property
    def place(self) -> str:
        """Where it burnt through."""
        return f"{'after' if self.after else 'before'} {self.steps[self.calls - 1]}"

    def _meet(self, step: str) -> int:
        if self._burnt.is_set():
            raise KilledError(step)
        self.steps.append(step)
        if len(self.steps) == self.calls and not self.after:
            self._burn()
        return len(self.steps)

    def _pass(self, number: int) -> None:
        if self._burnt.is_set() or number == self.calls:
            self._burn()

    def _burn(self) -> None:
        self._burnt.set()
        raise KilledError(self.place)

    async def survives(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Whether the work comes to its end. What waits for a task that was killed would wait for ever."""
        task, burning = asyncio.create_task(work), asyncio.create_task(self._burnt.wait())
        await asyncio.wait([task, burning], return_when=asyncio.FIRST_COMPLETED)
        survived = not self._burnt.is_set()
        for one in (task, burning):
            one.cancel()
        ends = await asyncio.gather(task, burning, return_exceptions=True)
        if survived and isinstance(ends[0], BaseException):
            raise ends[0]
        return survived
