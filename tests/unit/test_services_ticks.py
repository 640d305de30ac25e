"""What is due by the clock, on fakes: every duty gets its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.services import run_ticks as ticks
from minitoolstream.services.core import Core
from minitoolstream.services.reconcile_now import reconcile_now
from minitoolstream.services.run_ticks import run_ticks
from tests.core_kit import core_kit


def duty(calls: list[str], name: str, *counts: int) -> Callable[[Core], Awaitable[int]]:
    left = list(counts)

    async def act(_core: Core) -> int:
        calls.append(name)
        return left.pop(0) if left else 0

    return act


async def test_much_of_one_duty_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ticks, "DUTIES", {"purge": duty(calls, "purge", 5, 5, 5), "end": duty(calls, "end", 1, 1)})
    assert await run_ticks(core_kit().core) == {"purge": 15, "end": 2}
    assert calls == ["purge", "end"] * 4


async def test_a_duty_that_fails_is_told_of_after_the_others_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def fails(_core: Core) -> int:
        raise unavailable("not now")

    monkeypatch.setattr(ticks, "DUTIES", {"fails": fails, "end": duty(calls, "end", 1, 1)})
    with pytest.raises(MtsError, match="not now"):
        await run_ticks(core_kit().core)
    assert calls == ["end", "end", "end"]


async def test_what_is_due_is_done_also_when_the_store_is_down() -> None:
    kit = core_kit()
    await kit.ticket(2)
    kit.advance(31)
    kit.payloads.down = True
    with pytest.raises(MtsError):
        await reconcile_now(kit.core)
    assert "tick" in kit.deliveries.calls
    kit.payloads.down = False
    counts = await reconcile_now(kit.core)
    assert (counts["looked"], counts["ticked"]) == (1, 0)
