"""Leases that wait, on a scripted store: a message wakes one worker, not a thousand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minitoolstream.domain.consumer import Lease
from minitoolstream.domain.message import Extent
from minitoolstream.services.lease_messages import LeasedMessages, lease_messages
from tests.core_kit import CoreKit, core_kit

LONG = 20.0


def extent(sequence: int) -> Extent:
    return Extent(sequence, {}, f"m/orders/1/{sequence}", "orders", 1, 0, sequence - 1, 1, 5)


class Queue:
    """A shared durable as Tarantool would answer for it."""

    def __init__(self, kit: CoreKit) -> None:
        self.kit = kit
        self.ready: list[int] = []
        self.due_in_ms: int | None = None
        self.asked = 0
        kit.deliveries.answers["lease"] = self.lease

    async def lease(self, _subject: str, _durable: str, limit: int, _seconds: float | None) -> Lease:
        self.asked += 1
        await asyncio.sleep(0)
        taken, self.ready = self.ready[:limit], self.ready[limit:]
        if not taken:
            return Lease(None, (), (), 0, self.due_in_ms)
        tries = tuple((sequence, sequence, 1 + sequence % 2) for sequence in reversed(taken))
        return Lease("lease", tuple(map(extent, taken)), tries, 5_000, None)

    def commit(self, *sequences: int) -> None:
        self.ready += sequences
        self.kit.metadata._uploads.changes.push("/orders")


@pytest.fixture
async def kit() -> AsyncIterator[CoreKit]:
    made = core_kit()
    yield made
    await made.core.watcher.close()


async def workers(kit: CoreKit, count: int, wait: float = LONG) -> list[asyncio.Task[LeasedMessages]]:
    tasks = [asyncio.create_task(lease_messages(kit.core, "orders", "work", 1, wait=wait)) for _ in range(count)]
    for _ in range(30):
        await asyncio.sleep(0)
    return tasks


async def first_done(tasks: list[asyncio.Task[LeasedMessages]], count: int) -> None:
    deadline = asyncio.get_running_loop().time() + 5
    while sum(task.done() for task in tasks) < count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


async def test_each_message_says_how_often_it_was_handed_out(kit: CoreKit) -> None:
    queue = Queue(kit)
    queue.ready = [4, 5]
    leased = await lease_messages(kit.core, "orders", "work", 2)
    assert [(message.sequence, message.deliveries) for message in leased.messages] == [(4, 1), (5, 2)]
    assert (leased.lease_id, leased.expires_at_ms) == ("lease", 5_000)
    assert all(message.url for message in leased.messages)
    assert kit.metrics.messages_delivered == 2


async def test_without_the_object_store_messages_are_leased_with_their_urls(kit: CoreKit) -> None:
    """An error would leave them leased, and each repeated call would use up a try of theirs."""
    queue = Queue(kit)
    queue.ready = [4]
    kit.payloads.down = True
    leased = await lease_messages(kit.core, "orders", "work", 2, inline=True)
    assert [(message.sequence, message.data, bool(message.url)) for message in leased.messages] == [(4, None, True)]
    assert queue.asked == 1


async def test_an_object_store_that_hangs_does_not_use_up_a_lease(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    Queue(kit).ready = [4]
    monkeypatch.setattr("minitoolstream.services.lease_messages._STORE_SECONDS", 0.01)
    kit.payloads.get_range = hang  # type: ignore[method-assign,assignment]
    leased = await asyncio.wait_for(lease_messages(kit.core, "orders", "work", 1, inline=True), 5)
    assert [message.data for message in leased.messages] == [None]


async def test_a_thousand_waiting_workers_do_not_all_ask_for_one_message(kit: CoreKit) -> None:
    queue = Queue(kit)
    tasks = await workers(kit, 1000)
    assert queue.asked <= 2
    before = queue.asked
    queue.commit(1)
    await first_done(tasks, 1)
    await asyncio.sleep(0.02)
    assert sum(task.done() for task in tasks) == 1
    assert queue.asked - before <= 3
    queue.commit(*range(2, 12))
    await first_done(tasks, 11)
    assert queue.asked - before <= 3 + 12
    kit.core.draining.set()
    leased = await asyncio.wait_for(asyncio.gather(*tasks), 5)
    taken = [message.sequence for one in leased for message in one.messages]
    assert sorted(map(int, taken)) == list(range(1, 12))
    assert queue.asked - before <= 3 + 14, "a host that stops asks no more"


async def test_workers_get_messages_in_the_order_they_came(kit: CoreKit) -> None:
    queue = Queue(kit)
    tasks = await workers(kit, 5)
    queue.commit(1, 2)
    await first_done(tasks, 2)
    assert [task.done() for task in tasks] == [True, True, False, False, False]
    kit.core.draining.set()
    await asyncio.gather(*tasks)


async def test_what_others_hold_is_asked_for_when_it_is_due(kit: CoreKit) -> None:
    queue = Queue(kit)
    queue.due_in_ms = 20
    (task,) = await workers(kit, 1)
    await asyncio.sleep(0.01)  # let the watcher find its place: only the time can wake the worker from now on
    queue.ready = [7]
    assert [message.sequence for message in (await asyncio.wait_for(task, 5)).messages] == [7]


async def test_one_that_waited_in_vain_has_no_lease(kit: CoreKit) -> None:
    Queue(kit)
    tasks = await workers(kit, 3, wait=0.05)
    assert await asyncio.gather(*tasks) == [LeasedMessages(None, 0, [])] * 3


async def test_a_worker_that_leaves_does_not_hold_up_the_others(kit: CoreKit) -> None:
    queue = Queue(kit)
    head, second, third = await workers(kit, 3)
    head.cancel()
    second.cancel()
    await asyncio.wait([head, second])
    queue.commit(1)
    assert len((await asyncio.wait_for(third, 5)).messages) == 1


async def test_without_a_wait_the_answer_comes_at_once(kit: CoreKit) -> None:
    queue = Queue(kit)
    await workers(kit, 1)
    leased: Any = await asyncio.wait_for(lease_messages(kit.core, "orders", "work", 1), 5)
    assert leased.messages == []
    assert queue.asked >= 2
