"""Waking those who wait: nobody is forgotten, whenever they come."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from minitoolstream.ports import Changes, MetadataStore
from minitoolstream.services.watch_changes import Watcher, subject_key


class ChangesByHand:
    """Answers a long call when the test says so."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[asyncio.Future[Changes]] = asyncio.Queue()

    async def wait_for_changes(self, _cursor: tuple[str, int], _timeout: float) -> Changes:
        answer: asyncio.Future[Changes] = asyncio.get_running_loop().create_future()
        self._answers.put_nowait(answer)
        return await answer

    async def asked(self) -> asyncio.Future[Changes]:
        async with asyncio.timeout(5):
            return await self._answers.get()


def tell(answer: asyncio.Future[Changes], *subjects: str) -> None:
    answer.set_result(Changes(("boot", 1), lost=False, upload_ids=[], names=list(subjects)))


def watcher_of(changes: ChangesByHand) -> Watcher:
    return Watcher(cast("MetadataStore", changes), asyncio.Event())


@pytest.mark.parametrize("steps", range(8))
async def test_one_who_comes_while_the_last_one_leaves_is_woken_too(steps: int) -> None:
    changes = ChangesByHand()
    watcher = watcher_of(changes)
    with watcher.watch(subject_key("orders")):
        answer = await changes.asked()
    tell(answer, "other")  # nobody is left: the long call's end is the end of watching
    for _ in range(steps):
        await asyncio.sleep(0)
    with watcher.watch(subject_key("orders")) as changed:
        tell(await changes.asked(), "orders")
        async with asyncio.timeout(5):
            await changed.wait()
    await watcher.close()


async def test_a_change_in_the_middle_of_a_round_wakes_those_who_were_woken_already() -> None:
    changes = ChangesByHand()
    watcher = watcher_of(changes)
    with watcher.watch(subject_key("orders")) as first:
        others = [watcher.watch(subject_key("orders")) for _ in range(100)]
        events = [first, *(other.__enter__() for other in others)]
        tell(await changes.asked(), "orders")
        async with asyncio.timeout(5):
            await first.wait()
            first.clear()
            tell(await changes.asked(), "orders")
            await first.wait()
            await asyncio.gather(*(event.wait() for event in events))
        for other in others:
            other.__exit__(None, None, None)
    await watcher.close()
