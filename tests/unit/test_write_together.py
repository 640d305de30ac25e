"""Rows of many callers in few batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from minitoolstream.domain.catalog_tables import CLAIMS
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.ports.catalog import Change, Delete
from minitoolstream.services import write_together
from minitoolstream.services.write_together import Together

MOST = 20


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_together, "_MOST", MOST)
    monkeypatch.setattr(write_together, "_LONGEST_REST", 0.001)


class Slow:
    """Writes when it is told to; a batch with the key `bad` fails."""

    def __init__(self) -> None:
        self.steps: list[list[list[str]]] = []
        self.go_on = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    @property
    def batches(self) -> list[list[str]]:
        return [[name for step in steps for name in step] for steps in self.steps]

    async def write_in_order(self, steps: Sequence[Sequence[Change]]) -> None:
        self.steps.append([[change.key[0] for change in step if isinstance(change, Delete)] for step in steps])
        names = self.batches[-1]
        self.begun.release()
        await self.go_on.wait()
        if "bad" in names:
            raise unavailable("away")


def changes(*names: str) -> list[Change]:
    return [Delete(CLAIMS, (name,)) for name in names]


async def started(together: Together, *calls: list[Change]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(together.write(call)) for call in calls]
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_while_others_are_written_shares_a_batch() -> None:
    store: Any = Slow()
    tasks = await started(Together(store), *(changes(f"{number}") for number in range(100)))
    store.go_on.set()
    await asyncio.gather(*tasks)
    assert sorted(name for batch in store.batches for name in batch) == sorted(map(str, range(100)))
    assert max(map(len, store.batches)) == MOST
    assert len(store.batches) <= 10


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(write_together, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


async def test_a_write_begins_at_once_and_the_next_a_moment_later_with_all_that_has_come(
    clock: SimpleNamespace,
) -> None:
    store: Any = Slow()
    store.go_on.set()
    together = Together(store)
    await together.write(changes("alone"))
    with together.coming():
        tasks = await started(together, changes("one"))
        for _ in range(5):
            await asyncio.sleep(0.002)
        tasks += await started(together, changes("two"))
        assert store.batches == [["alone"]]
        clock.now += 0.001
        await asyncio.gather(*tasks)
    assert store.batches == [["alone"], ["one", "two"]]


async def test_nobody_waits_for_more_when_nothing_more_comes(clock: SimpleNamespace) -> None:
    store: Any = Slow()
    store.go_on.set()
    together = Together(store)
    await together.write(changes("alone"))
    with together.coming():
        turn = asyncio.create_task(together.until_next())
        tasks = await started(together, changes("one"))
        await asyncio.sleep(0.005)
        assert (store.batches, turn.done()) == ([["alone"]], False)
    await asyncio.gather(turn, *tasks)
    assert store.batches == [["alone"], ["one"]]
    assert clock.now == 100.0


async def test_changes_of_one_call_are_never_split() -> None:
    store: Any = Slow()
    calls = [changes(*(f"{number}-{part}" for part in range(7))) for number in range(20)]
    large = changes(*(f"large-{part}" for part in range(MOST + 5)))
    tasks = await started(Together(store), *calls, large)
    store.go_on.set()
    await asyncio.gather(*tasks)
    for call in [*calls, large]:
        names = [change.key[0] for change in call if isinstance(change, Delete)]
        assert sum(set(names) <= set(batch) for batch in store.batches) == 1


async def test_steps_keep_their_order_beside_those_of_others() -> None:
    store: Any = Slow()
    together = Together(store)
    calls = [
        together.write(changes(f"{number}-0"), changes(f"{number}-1"), changes(f"{number}-2")) for number in range(9)
    ]
    tasks = [*await started(together, changes("alone")), *map(asyncio.ensure_future, calls)]
    store.go_on.set()
    await asyncio.gather(*tasks)
    for steps in store.steps:
        assert all(name.endswith(f"-{at}") for at, step in enumerate(steps) for name in step if name != "alone")
    assert sum(map(len, store.batches)) == 1 + 9 * 3


async def test_a_call_returns_when_its_changes_are_there_and_not_sooner() -> None:
    store: Any = Slow()
    (task,) = await started(Together(store), changes("one"))
    await asyncio.sleep(0)
    assert store.batches == [["one"]]
    assert not task.done()
    store.go_on.set()
    await task


async def test_a_batch_that_fails_fails_its_callers_and_the_next_is_written() -> None:
    store: Any = Slow()
    together = Together(store)
    (bad,) = await started(together, changes("bad"))
    store.go_on.set()
    with pytest.raises(MtsError):
        await bad
    await together.write(changes("good"))
    assert store.batches[-1] == ["good"]


async def test_who_no_longer_waits_holds_nobody_up() -> None:
    store: Any = Slow()
    gone, stays = await started(Together(store), changes("one"), changes("two"))
    gone.cancel()
    store.go_on.set()
    await stays


async def test_whoever_writes_again_when_all_batches_have_just_ended_is_served() -> None:
    store: Any = Slow()
    async with Together(store) as writing:

        async def twice() -> None:
            await writing.write(changes("a"))
            await writing.write(changes("b"))

        one = asyncio.create_task(twice())
        await asyncio.sleep(0)
        other = asyncio.create_task(writing.write(changes("c")))
        for _ in range(2):
            await store.begun.acquire()
        store.go_on.set()  # both end in one turn of the loop
        async with asyncio.timeout(5):
            await asyncio.gather(one, other)
    assert store.batches == [["a"], ["c"], ["b"]]
