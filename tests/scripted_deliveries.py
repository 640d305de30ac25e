"""In the place of a `ports.DeliveryStore` or `TransactionStore`. What durables and transactions do is Tarantool's logic
and tested there; tests of what stands before it script the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class ScriptedDeliveries:
    """`answers` maps a method to a function of its arguments; `calls` has the names of all that were called."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[..., Any]] = {"tick": lambda _limit: 0}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            answer = self.answers[name](*given, **named)
            return await answer if isinstance(answer, Awaitable) else answer

        return call
