"""Waiting readers, on fakes: woken by the commit, and one read for all who stand at the same place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minitoolstream.domain.consumer import AtTime, Condition, Filter, Start
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.ports import DurablePage, ExtentPage
from minitoolstream.services.fetch_messages import MessagePage, Selection
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.read_messages import Reader, Reading, place_of, place_to_follow
from minitoolstream.services.wait_for_messages import follow_messages, wait_for_messages
from tests.core_kit import CoreKit, core_kit

LONG = 20.0
ORDERS = Selection("orders", 100)


class Counted:
    """How many pages were read of the metadata store."""

    def __init__(self, kit: CoreKit) -> None:
        self.pages = 0
        self._get = kit.metadata.get_messages
        kit.metadata.get_messages = self._counting  # type: ignore[method-assign]

    async def _counting(self, *given: Any, **named: Any) -> ExtentPage:
        self.pages += 1
        await asyncio.sleep(0)  # as a server would: others ask meanwhile
        return await self._get(*given, **named)


@pytest.fixture
async def kit() -> AsyncIterator[CoreKit]:
    made = core_kit()
    yield made
    await made.core.watcher.close()


async def publish(kit: CoreKit, *payloads: bytes, subject: str = "orders", **headers: str) -> None:
    await publish_batch(kit.core, [InlineMessage(subject, payload, "text/plain", headers) for payload in payloads])


async def poll(
    kit: CoreKit, start: Start = 1, wait: float = LONG, selection: Selection = ORDERS, reader: Reader | None = None
) -> Reading:
    return await wait_for_messages(kit.core, await place_of(kit.core, selection, reader, start), wait)


async def waiting(*coroutines: Any) -> list[asyncio.Task[Reading]]:
    """Readers who have looked, also after the watcher's first answer, and now do nothing until something comes."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    await settled()
    assert not any(task.done() for task in tasks)
    return tasks


async def settled() -> None:
    """Until nobody has a step to do: all wait for an event or for time to pass."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # noqa: ASYNC110 - one turn of the loop, not a wait
        await asyncio.sleep(0)


def sequences(reading: Reading) -> list[Any]:
    assert isinstance(reading.page, MessagePage)
    return [message.sequence for message in reading.page.messages]


async def test_what_is_there_comes_at_once(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2")
    assert sequences(await poll(kit)) == [1, 2]
    assert sequences(await poll(kit, "last")) == [2]
    assert kit.metrics.messages_delivered == 3


async def test_a_waiting_reader_is_woken_by_the_commit(kit: CoreKit) -> None:
    (reader,) = await waiting(poll(kit, "new"))
    await publish(kit, b"other", subject="others")
    await publish(kit, b"mine")
    assert sequences(await asyncio.wait_for(reader, 5)) == [2]


async def test_one_that_waited_in_vain_gets_an_empty_page_to_go_on_from(kit: CoreKit) -> None:
    await publish(kit, b"1")
    reading = await poll(kit, "new", 0.01)
    assert (reading.page.count, reading.page.next_sequence) == (0, 2)


async def test_two_hundred_waiting_readers_cost_one_read_at_a_commit(kit: CoreKit) -> None:
    counted = Counted(kit)
    readers = await waiting(*(poll(kit, 1) for _ in range(200)))
    assert counted.pages <= 4, "they begin together, and are woken once when the watcher has found its place"
    before = counted.pages
    await publish(kit, b"for all")
    readings = await asyncio.wait_for(asyncio.gather(*readers), 10)
    assert [sequences(reading) for reading in readings] == [[1]] * 200
    assert counted.pages - before <= 2
    assert kit.metrics.messages_delivered == 200


async def test_idle_readers_read_nothing(kit: CoreKit) -> None:
    counted = Counted(kit)
    await waiting(*(poll(kit, 1) for _ in range(50)))
    before = counted.pages
    await publish(kit, b"x", subject="others")
    await asyncio.sleep(0.05)
    assert counted.pages == before


async def test_a_reader_never_misses_what_was_committed_while_others_read(kit: CoreKit) -> None:
    """The page that others are fetching may be older than a commit the late reader can still wait for."""
    gate, get = asyncio.Event(), kit.metadata.get_messages

    async def slow(*given: Any, **named: Any) -> ExtentPage:
        page = await get(*given, **named)
        await gate.wait()
        return page

    kit.metadata.get_messages = slow  # type: ignore[method-assign]
    (early,) = await waiting(poll(kit, 1))
    kit.metadata.get_messages = get  # type: ignore[method-assign]
    await publish(kit, b"between")
    await asyncio.sleep(0.02)
    late = asyncio.create_task(poll(kit, 1))
    await asyncio.sleep(0.02)
    gate.set()
    readings = await asyncio.wait_for(asyncio.gather(early, late), 5)
    assert [sequences(reading) for reading in readings] == [[1], [1]]


async def test_one_who_does_not_wait_reads_what_it_has_published(kit: CoreKit) -> None:
    gate, get = asyncio.Event(), kit.metadata.get_messages

    async def slow(*given: Any, **named: Any) -> ExtentPage:
        page = await get(*given, **named)
        await gate.wait()
        return page

    async def not_told_yet(*_: Any) -> Any:
        await asyncio.Event().wait()

    kit.metadata.get_messages = slow  # type: ignore[method-assign]
    kit.metadata.wait_for_changes = not_told_yet  # type: ignore[method-assign,assignment]
    await waiting(poll(kit, 1))
    kit.metadata.get_messages = get  # type: ignore[method-assign]
    await publish(kit, b"mine")
    assert sequences(await asyncio.wait_for(poll(kit, 1, wait=0), 5)) == [1]
    gate.set()


async def test_a_host_that_stops_answers_those_who_wait(kit: CoreKit) -> None:
    readers = await waiting(*(poll(kit, 1) for _ in range(20)))
    kit.core.draining.set()
    readings = await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert all(reading.page.count == 0 for reading in readings)


async def test_a_filter_passes_over_what_does_not_fit(kit: CoreKit) -> None:
    red: Filter = (Condition("colour", "equals", "red"),)
    (reader,) = await waiting(poll(kit, 1, selection=Selection("orders", 10, conditions=red)))
    await publish(kit, b"1", colour="blue")
    await publish(kit, b"2", colour="red")
    reading = await asyncio.wait_for(reader, 5)
    assert sequences(reading) == [2]
    assert reading.page.next_sequence == 3


async def test_a_time_is_a_start_too(kit: CoreKit) -> None:
    await publish(kit, b"old")
    kit.advance(100)
    now = kit.metadata.clock.seconds()
    await publish(kit, b"new")
    assert sequences(await poll(kit, AtTime(now), wait=0)) == [2]
    assert sequences(await poll(kit, AtTime(now - 100), wait=0)) == [1, 2]
    assert sequences(await poll(kit, AtTime(now + 1), wait=0)) == []


# -- durables: the first look asks for the position, what comes then is shared


class Durable:
    """A durable as Tarantool would answer for it."""

    def __init__(self, kit: CoreKit, conditions: Filter = ()) -> None:
        self.kit, self.position, self.fence, self.conditions = kit, 0, 1, conditions
        self.afters: list[int | None] = []
        kit.deliveries.answers["read"] = self.read

    async def read(self, subject: str, _durable: str, limit: int, **how: Any) -> DurablePage:
        after, fence = how.get("after") or (None, None)
        self.afters.append(after)
        start = max(after or 0 if fence in {None, self.fence} else 0, self.position) + 1
        page = await self.kit.metadata.get_messages(subject, start, limit, conditions=self.conditions)
        return DurablePage(page, self.position, self.conditions, self.fence)


async def durable_poll(kit: CoreKit, start: Start | None = None, wait: float = LONG) -> Reading:
    return await wait_for_messages(kit.core, await place_of(kit.core, ORDERS, Reader("billing"), start), wait)


async def test_a_durable_is_read_from_its_position(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2", b"3")
    Durable(kit).position = 1
    reading = await durable_poll(kit)
    assert (sequences(reading), reading.position) == ([2, 3], 1)
    assert sequences(await durable_poll(kit, 3)) == [3]


async def test_two_hundred_readers_of_durables_share_what_comes(kit: CoreKit) -> None:
    durable, counted = Durable(kit), Counted(kit)
    readers = await waiting(*(durable_poll(kit) for _ in range(200)))
    looks, before = len(durable.afters), counted.pages
    await publish(kit, b"for all")
    readings = await asyncio.wait_for(asyncio.gather(*readers), 10)
    assert [(sequences(reading), reading.position) for reading in readings] == [([1], 0)] * 200
    assert len(durable.afters) == looks
    assert counted.pages - before <= 2


async def test_a_waiting_reader_follows_a_seek(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2")
    durable = Durable(kit)
    durable.position = 2
    (reader,) = await waiting(durable_poll(kit))
    durable.position, durable.fence = 0, 2
    kit.metadata._uploads.changes.push("/orders/billing")
    reading = await asyncio.wait_for(reader, 5)
    assert (sequences(reading), reading.position) == ([1, 2], 0)


async def test_a_watcher_that_begins_anew_does_not_send_readers_back(kit: CoreKit) -> None:
    """Its first answer says that changes may have been missed; the durable was not moved."""
    await publish(kit, b"1", b"2")
    durable = Durable(kit)
    (reader,) = await waiting(durable_poll(kit, 3))
    assert len(durable.afters) >= 2, "the look was repeated"
    assert set(durable.afters) == {2}
    await publish(kit, b"3")
    assert sequences(await asyncio.wait_for(reader, 5)) == [3]


async def test_the_filter_of_a_durable_holds_for_what_comes_too(kit: CoreKit) -> None:
    Durable(kit, (Condition("colour", "equals", "red"),))
    (reader,) = await waiting(durable_poll(kit))
    await publish(kit, b"1", colour="blue")
    await publish(kit, b"2", colour="red")
    assert sequences(await asyncio.wait_for(reader, 5)) == [2]


# -- streams


async def test_a_stream_has_every_message_in_order_and_a_pause_when_there_is_none(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2", b"3")
    place = await place_to_follow(kit.core, Selection("orders", 2), None, "first")
    stream = follow_messages(kit.core, place, 0.01)
    seen: list[Any] = []
    pauses = 0
    async for reading in stream:
        if reading is None:
            pauses += 1
            if pauses == 1:
                await publish(kit, b"4")
            elif pauses == 2:
                kit.core.draining.set()
        else:
            assert reading.page.count <= 2
            seen += sequences(reading)
    assert seen == [1, 2, 3, 4]
    assert kit.core.watcher._watched == {}


async def test_a_stream_that_is_left_watches_nothing(kit: CoreKit) -> None:
    place = await place_to_follow(kit.core, ORDERS, None, "new")
    stream = follow_messages(kit.core, place, 0.01)
    assert await anext(stream) is None
    assert kit.core.watcher._watched
    await stream.aclose()
    assert kit.core.watcher._watched == {}


async def test_what_is_wrong_with_a_durable_is_said_before_the_stream_begins(kit: CoreKit) -> None:
    def unknown(*_: Any) -> None:
        raise MtsError("unknown_durable", "there is none")

    kit.deliveries.answers["read"] = unknown
    with pytest.raises(MtsError) as caught:
        await place_to_follow(kit.core, ORDERS, Reader("billing"), None)
    assert caught.value.code == "unknown_durable"


async def test_a_seek_between_the_check_and_the_first_page_of_a_stream_is_followed(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2")
    durable = Durable(kit)
    durable.position = 2
    place = await place_to_follow(kit.core, ORDERS, Reader("billing"), None)
    durable.position, durable.fence = 0, 2
    assert sequences(await place.read()) == [1, 2]


async def test_a_stream_goes_on_behind_what_was_seen_unless_the_durable_was_moved_since(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2", b"3")
    durable = Durable(kit)
    begins = {}
    for fence in (durable.fence, None, durable.fence - 1):
        place = await place_to_follow(kit.core, ORDERS, Reader("billing"), "new", (2, fence))
        assert place.fence == durable.fence
        begins[fence] = sequences(await place.read())
    assert begins == {durable.fence: [3], None: [3], durable.fence - 1: [1, 2, 3]}
