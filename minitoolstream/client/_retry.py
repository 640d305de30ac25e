"""When to try again: exponential pauses with full jitter, until the time for retries is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from minitoolstream.domain.pauses import doubled

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one call may go on trying, with the clock and the dice as parameters for tests."""

    seconds: float = 30.0
    random: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    def start(self) -> Backoff:
        return Backoff(self)


class Backoff:
    """The pauses of one call. Many clients that failed together do not come back together (full jitter)."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._deadline = policy.clock() + policy.seconds
        self._round = 0

    def progress(self) -> None:
        """Something worked: the time for retries starts again."""
        self._deadline = self._policy.clock() + self._policy.seconds
        self._round = 0

    async def pause(self, error: Exception, at_least: float = 0.0) -> None:
        """Wait before the next try; raises `error` when the time is over."""
        longest = doubled(FIRST_PAUSE, self._round, LONGEST_PAUSE)
        self._round += 1
        seconds = at_least + self._policy.random() * longest
        if self._policy.clock() + seconds > self._deadline:
            raise error
        await self._policy.sleep(seconds)
