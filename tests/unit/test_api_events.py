"""Server-Sent Events as they go over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from minitoolstream.api import events
from minitoolstream.domain.errors import unavailable
from minitoolstream.domain.pack import InlineMessage
from minitoolstream.services.fetch_messages import Selection
from minitoolstream.services.publish_batch import publish_batch
from minitoolstream.services.read_messages import Reading, place_to_follow
from tests.core_kit import CoreKit, core_kit


@pytest.fixture
async def kit() -> AsyncIterator[CoreKit]:
    made = core_kit()
    yield made
    await made.core.watcher.close()


async def publish(kit: CoreKit, *payloads: bytes, **headers: str) -> None:
    await publish_batch(kit.core, [InlineMessage("orders", payload, "text/plain", headers) for payload in payloads])


async def stream(kit: CoreKit, start: Any, **how: Any) -> AsyncIterator[bytes]:
    place = await place_to_follow(kit.core, Selection("orders", 2, **how), None, start)
    response = events.event_stream(kit.core, place)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.stream is not None
    return response.stream


async def test_a_stream_begins_with_where_to_resume(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2")
    assert await anext(await stream(kit, "new")) == b"retry: 1000\nid: 2\n\n"
    assert await anext(await stream(kit, "first")) == b"retry: 1000\nid: 0\n\n"


async def test_every_message_is_an_event_on_one_line(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2", note="two\nlines")
    found = await stream(kit, 1)
    await anext(found)
    first, second, rest = (await anext(found)).split(b"\n\n")
    assert rest == b""
    for number, event in enumerate((first, second), 1):
        name, kind, data = event.split(b"\n")
        assert (name, kind) == (b"id: %d" % number, b"event: message")
        message = msgspec.json.decode(data.removeprefix(b"data: "))
        assert (message["sequence"], message["headers"]) == (number, {"note": "two\nlines"})


async def test_extents_are_events_too(kit: CoreKit) -> None:
    await publish(kit, b"1", b"2")
    found = await stream(kit, 1, whole=True)
    await anext(found)
    event = await anext(found)
    assert event.startswith(b"id: 2\nevent: extent\ndata: {")
    assert event.count(b"event:") == 1


async def test_a_quiet_stream_has_a_heartbeat_that_moves_its_place(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.01)
    found = await stream(kit, 1)
    await anext(found)
    assert await anext(found) == b":\nid: 0\n\n"
    await publish_batch(kit.core, [InlineMessage("others", b"x", "text/plain")])
    heartbeats = [await anext(found), await anext(found)]
    assert heartbeats[-1] == b":\nid: 1\n\n"


async def test_a_stream_that_fails_says_why_and_ends(kit: CoreKit) -> None:
    found = await stream(kit, 1)
    await anext(found)

    async def down(*_: Any, **__: Any) -> Any:
        raise unavailable("Tarantool does not answer")

    kit.metadata.get_messages = down  # type: ignore[method-assign]
    event = await anext(found)
    name, data, *_ = event.split(b"\n")
    assert name == b"event: error"
    assert msgspec.json.decode(data.removeprefix(b"data: "))["error"]["code"] == "unavailable"
    with pytest.raises(StopAsyncIteration):
        await anext(found)


async def test_a_stream_ends_when_the_host_stops(kit: CoreKit) -> None:
    found = await stream(kit, 1)
    await anext(found)
    kit.core.draining.set()
    assert [event async for event in found] == []


async def test_the_same_page_is_encoded_once(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish(kit, b"1")
    place = await place_to_follow(kit.core, Selection("orders", 2), None, 1)
    reading = await place.read()
    first = events.events_of(reading)
    assert events.events_of(reading) is first


async def test_the_ids_of_a_durable_carry_its_fence_also_on_a_page_that_others_read(kit: CoreKit) -> None:
    await publish(kit, b"1")
    reading = await (await place_to_follow(kit.core, Selection("orders", 2), None, 1)).read()
    ids = [
        events.events_of(Reading(reading.page, 0, fence)).split(b"\n", 1)[0].decode() for fence in (None, 7, 8, None)
    ]
    assert ids == ["id: 1", "id: 1:7", "id: 1:8", "id: 1"]
