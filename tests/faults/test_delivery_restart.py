"""Restarts that users should hardly notice: scenarios 5 and 6 of the specification, and a host full of subscribers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minitoolstream.client import AsyncClient
from tests.durables import Durable, fill, sequences, subscribe
from tests.faults import load
from tests.faults.audit import check_stream
from tests.faults.load import Producers, payload_of
from tests.faults.subscribers import Subscriber
from tests.faults.test_kill import kill_host
from tests.live import Answer, Live, eventually, start_live

SUBSCRIBERS = 200
RATE = 100
SECONDS = 3


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("restarts"), webhook=False, hosts=2)
    yield live
    live.stop()


def test_two_hundred_subscribers_miss_nothing_and_see_nothing_twice_when_their_host_restarts(
    pair: Live, subject: str
) -> None:
    subscribers = [Subscriber(pair, subject, streams=number % 2 == 0) for number in range(SUBSCRIBERS)]

    def all_saw(given: list[int]) -> bool:
        return all(len(subscriber.seen) >= len(given) for subscriber in subscribers)

    async def saw(given: list[int]) -> None:
        await asyncio.to_thread(eventually, lambda: all_saw(given), 60)

    async def run() -> list[int]:
        readers = [asyncio.create_task(subscriber.run()) for subscriber in subscribers]
        given = await asyncio.to_thread(fill, pair, subject, "a", "b")
        await saw(given)
        await asyncio.to_thread(pair.hosts[0].stop)
        await asyncio.to_thread(pair.hosts[0].start)
        given += await asyncio.to_thread(fill, pair, subject, "c")
        await saw(given)
        await asyncio.to_thread(kill_host, pair.hosts[0])
        await asyncio.to_thread(pair.hosts[0].start)
        given += await asyncio.to_thread(fill, pair, subject, "d", "e")
        await saw(given)
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        return given

    given = asyncio.run(run())

    assert [subscriber.seen for subscriber in subscribers] == [given] * SUBSCRIBERS
    assert all(subscriber.connections >= 3 for subscriber in subscribers), "nobody was cut off"


def test_scenario_5_a_host_restarts_under_a_hundred_messages_a_second_and_publishing_goes_on(
    pair: Live, subject: str
) -> None:
    acknowledged: dict[str, int] = {}

    async def run() -> None:
        async with AsyncClient([host.url for host in pair.hosts], pair.token) as client, asyncio.TaskGroup() as group:

            async def publish(name: str) -> None:
                """Any error ends the test."""
                receipt = await client.publish(subject, payload_of(name))
                assert receipt.sequence is not None
                acknowledged[name] = receipt.sequence

            async def restart() -> None:
                await asyncio.to_thread(pair.hosts[0].stop)
                await asyncio.to_thread(pair.hosts[0].start)

            restarting: asyncio.Task[None] | None = None
            for number in itertools.count():
                group.create_task(publish(f"{number}-message"))
                if number == RATE // 2:
                    restarting = group.create_task(restart())
                if number >= RATE * SECONDS and restarting is not None and restarting.done():
                    return
                await asyncio.sleep(1 / RATE)

    asyncio.run(run())

    assert len(acknowledged) >= RATE * SECONDS
    check_stream(pair, subject, acknowledged)


def test_scenario_6_without_tarantool_every_call_says_try_again_and_then_all_goes_on(pair: Live, subject: str) -> None:
    first, second = fill(pair, subject, "a", "b")
    queue, plain = Durable(pair, subject, "queue"), Durable(pair, subject, "plain")
    queue.put(mode="shared")
    plain.put()
    lease = queue.post("lease", seconds=600).json["lease_id"]
    shared_out = Durable(pair, subject, "sessions")
    shared_out.put()
    epoch = shared_out.post("sessions", session_id="w", ttl=300).json["epoch"]
    calls: dict[str, Callable[[], Answer]] = {
        "publish": lambda: pair.publish(subject, b"c"),
        "ticket": lambda: pair.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1}),
        "page": lambda: pair.api("GET", f"/v1/subjects/{subject}/messages"),
        "subscribe": lambda: subscribe(pair, subject, start="new", wait=1),
        "stream": lambda: pair.api("GET", f"/v1/subjects/{subject}/subscribe", headers={"accept": "text/event-stream"}),
        "latest": lambda: pair.api("GET", f"/v1/subjects/{subject}/latest"),
        "durable": lambda: pair.api("GET", plain.path),
        "put": lambda: plain.put(ack_wait=5),
        "read": lambda: subscribe(pair, subject, durable="plain"),
        "ack": lambda: plain.post("ack", sequence=first),
        "lease": lambda: queue.post("lease", wait=1),
        "leased ack": lambda: queue.post("ack", lease_id=lease, sequences=[first]),
        "heartbeat": lambda: shared_out.post("sessions/w/heartbeat", epoch=epoch),
    }
    pair.tarantool.stop()
    with ThreadPoolExecutor(len(calls)) as executor:
        refused = dict(zip(calls, executor.map(lambda call: call(), calls.values()), strict=True))
    pair.tarantool.start()

    assert {name: answer.status for name, answer in refused.items()} == dict.fromkeys(calls, 503)
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused.values())
    assert {answer.code for answer in refused.values()} == {"unavailable"}
    eventually(lambda: pair.api("GET", "/readyz").status == 200)
    published = pair.publish(subject, b"c")
    assert published.status == 201
    assert sequences(plain.read()) == [first, second, published.json["sequence"]], "no refused ack counts"
    assert queue.post("ack", lease_id=lease, sequences=[first]).json == {"acked": 1}, "a lease outlives Tarantool"
    assert shared_out.post("sessions/w/heartbeat", epoch=epoch).status == 200, "and so does a session"
    assert plain.now["ack_wait"] != 5


def test_readers_that_wait_while_tarantool_restarts_get_what_is_published_after(pair: Live, subject: str) -> None:
    queue, plain = Durable(pair, subject, "queue"), Durable(pair, subject, "plain")
    queue.put(mode="shared")
    plain.put()

    def patient(ask: Callable[[], Answer]) -> Any:
        """As a client does: again when told to."""
        return eventually(lambda: (answer := ask()).status == 200 and answer.json["messages"])

    with ThreadPoolExecutor(3) as executor:
        waiting = [
            executor.submit(patient, lambda: subscribe(pair, subject, start="first", wait=5)),
            executor.submit(patient, lambda: subscribe(pair, subject, durable="plain", wait=5)),
            executor.submit(patient, lambda: queue.post("lease", wait=5)),
        ]
        pair.tarantool.kill()
        pair.tarantool.start()
        producers = Producers(load.inline(pair, subject), "key", 1)
        with producers:
            producers.wait_for_more(1)
        assert all(future.result() for future in waiting)
