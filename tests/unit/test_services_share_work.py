"""Many who ask for the same at once."""

from __future__ import annotations

import asyncio

import pytest

from minitoolstream.services.share_work import Queues, SingleFlight


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Work:
    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()
        self.problem: Exception | None = None

    async def __call__(self) -> int:
        self.calls += 1
        call = self.calls
        await self.go.wait()
        if self.problem:
            raise self.problem
        return call


async def test_those_who_ask_at_once_share_one_answer() -> None:
    flights, work = SingleFlight(), Work()
    asking = [asyncio.create_task(flights.run("key", work)) for _ in range(100)]
    await settle()
    work.go.set()
    assert await asyncio.gather(*asking) == [1] * 100
    assert await flights.run("key", work) == 2, "an answer is not kept"


async def test_what_several_asked_for_is_kept_for_those_who_come_a_moment_later() -> None:
    flights, work = SingleFlight(keep=30), Work()
    asking = [asyncio.create_task(flights.run("key", work)) for _ in range(2)]
    await settle()
    work.go.set()
    assert list(await asyncio.gather(*asking)) == [1, 1]
    assert await flights.run("key", work) == 1
    assert await flights.run("alone", work) == 2
    assert await flights.run("alone", work) == 3, "what one alone asked for is not kept"


async def test_what_is_kept_goes_in_time() -> None:
    flights, work = SingleFlight(keep=0.01), Work()
    work.go.set()
    await asyncio.gather(*(flights.run("key", work) for _ in range(2)))
    deadline = asyncio.get_running_loop().time() + 5
    while flights._flights or flights._shared:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
    assert await flights.run("key", work) == 2, "and is asked for again"


async def test_other_keys_are_asked_for_on_their_own() -> None:
    flights, work = SingleFlight(), Work()
    work.go.set()
    assert sorted(await asyncio.gather(*(flights.run(key, work) for key in "abc"))) == [1, 2, 3]


async def test_one_who_leaves_does_not_take_the_answer_away() -> None:
    flights, work = SingleFlight(), Work()
    first, second = (asyncio.create_task(flights.run("key", work)) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    work.go.set()
    assert await second == 1
    assert first.cancelled()


async def test_a_failure_is_everybodys_and_is_not_kept() -> None:
    flights, work = SingleFlight(), Work()
    work.problem = ValueError("down")
    work.go.set()
    outcomes = await asyncio.gather(*(flights.run("key", work) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 3
    assert work.calls == 1
    work.problem = None
    assert await flights.run("key", work) == 2


async def test_turns_are_taken_in_order() -> None:
    turns, seen, busy = Queues(), [], 0

    async def act(number: int) -> None:
        nonlocal busy
        async with turns.turn("key"):
            busy += 1
            assert busy == 1
            await asyncio.sleep(0)
            seen.append(number)
            busy -= 1

    await asyncio.gather(*(act(number) for number in range(20)))
    assert seen == list(range(20))
    assert turns._queues == {}, "nothing is left of a queue when the last has gone"


async def test_one_who_leaves_the_queue_does_not_hold_it_up() -> None:
    turns, release = Queues(), asyncio.Event()

    async def hold() -> str:
        async with turns.turn("key"):
            await release.wait()
            return "done"

    first, second, third = (asyncio.create_task(hold()) for _ in range(3))
    await settle()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    assert list(await asyncio.gather(first, third)) == ["done", "done"]
    assert turns._queues == {}
