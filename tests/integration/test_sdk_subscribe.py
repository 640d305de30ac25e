"""Subscriptions of the SDK, on real servers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from minitoolstream.client import AsyncClient, AsyncDelivery, Client, Delivery, Item, MtsError
from minitoolstream.domain.limits import MIB
from tests.live import Live, eventually


@pytest.fixture
def client(live: Live, tmp_path: Path) -> Iterator[Client]:
    with Client(live.url, live.token, state_dir=tmp_path / "state") as client:
        yield client


def publish(client: Client, subject: str, count: int) -> list[int]:
    results = client.publish_batch(subject, [f"message {number}" for number in range(count)])
    return [result.unwrap().sequence or 0 for result in results]


def reader(code: str, live: Live, *arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "MTS_URL": live.url, "MTS_TOKEN": live.token}
    command = [sys.executable, "-u", "-c", code, *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


# -- the specification's second scenario


async def test_ten_durables_read_a_hundred_messages_each_and_their_positions_are_saved(
    live: Live, subject: str
) -> None:
    async with AsyncClient(live.url, live.token) as client:

        async def read(durable: str) -> list[int]:
            async with client.subscribe(subject, durable=durable) as subscription:
                found: list[int] = []
                async for delivery in subscription:
                    found.append(delivery.sequence)
                    if len(found) == 100:
                        return found
            return found

        reading = [asyncio.create_task(read(f"durable-{number}")) for number in range(10)]
        receipts = [await client.publish(subject, f"message {number}") for number in range(100)]
        expected = [receipt.sequence for receipt in receipts]
        assert await asyncio.gather(*reading) == [expected] * 10
        for number in range(10):
            # The block was left by a return: the last message counts as handled.
            consumer = await client.consumers.get(subject, f"durable-{number}")
            assert (consumer.lag, consumer.partitions[0].offset) == (0, 99)


# -- readers


def test_a_reader_starts_where_it_is_told(client: Client, subject: str) -> None:
    first = publish(client, subject, 3)
    eventually(lambda: datetime.now(UTC).timestamp() > client.get(first[-1]).create_at + 1.1)
    between = datetime.now(UTC)
    second = publish(client, subject, 2)

    def read(start: object) -> list[int]:
        return [delivery.sequence for delivery in client.subscribe(subject, start=start, idle=0)]  # type: ignore[arg-type]

    assert read("first") == first + second
    assert read("last") == second[-1:]
    assert read("new") == []
    assert read(first[1]) == first[1:] + second
    assert read(between.replace(microsecond=0)) == second


def test_payloads_come_as_bytes_as_a_stream_and_as_a_file(client: Client, subject: str, tmp_path: Path) -> None:
    small, large = b"small", os.urandom(9 * MIB)
    client.publish(subject, small, codec="zstd")
    client.publish(subject, large)
    client.publish(subject, b"x" * 5 * MIB, codec="gzip")
    digests = []
    with client.subscribe(subject, idle=0) as subscription:
        for delivery in subscription:
            data = delivery.data()
            digest = hashlib.sha256()
            for block in delivery.stream():
                digest.update(block)
            delivery.save(tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes() == data
            assert digest.digest() == hashlib.sha256(data).digest()
            digests.append((delivery.message.codec, len(data), delivery.message.size < len(data) / 10))
    assert digests == [("zstd", 5, False), (None, 9 * MIB, False), ("gzip", 5 * MIB, True)]


def test_a_filter_selects_and_what_it_leaves_out_counts_as_read(client: Client, subject: str) -> None:
    kinds = ["order", "refund", "order-eu", "other"]
    client.publish_batch(subject, [Item(kind, headers={"kind": kind}) for kind in kinds])
    with client.subscribe(subject, durable="d", filter="kind^=order", idle=0) as subscription:
        assert [delivery.data() for delivery in subscription] == [b"order", b"order-eu"]
    assert client.consumers.get(subject, "d").lag == 0
    found = client.subscribe(subject, filter=["kind=refund"], idle=0)
    assert [delivery.data() for delivery in found] == [b"refund"]


def test_a_seek_is_followed_by_a_reader_that_waits(client: Client, subject: str) -> None:
    sequences = publish(client, subject, 3)
    with client.subscribe(subject, durable="d") as subscription:
        assert [next(subscription).sequence for _ in range(3)] == sequences
        waiting = threading.Timer(0.3, lambda: client.consumers.seek(subject, "d", sequences[1]))
        waiting.start()
        assert [next(subscription).sequence for _ in range(2)] == sequences[1:]
        waiting.join()


def test_what_readers_cannot_go_on_with_is_a_clear_error(client: Client, subject: str) -> None:
    publish(client, subject, 1)
    client.consumers.put(subject, "queue", mode="shared")
    with pytest.raises(MtsError) as caught:
        next(client.subscribe(subject, durable="queue"))
    assert caught.value.code == "mode_mismatch"
    with client.subscribe(subject, durable="d") as subscription:
        next(subscription)
        threading.Timer(0.3, lambda: client.consumers.delete(subject, "d")).start()
        with pytest.raises(MtsError) as caught:
            next(subscription)
    assert caught.value.code == "unknown_durable"


# -- shared work


async def test_readers_of_a_shared_durable_get_each_message_once(live: Live, subject: str) -> None:
    async with AsyncClient(live.url, live.token) as client:
        results = await client.publish_batch(subject, [str(number) for number in range(300)])
        seen: Counter[int] = Counter()

        async def handle(delivery: AsyncDelivery) -> None:
            seen[delivery.sequence] += 1
            await asyncio.sleep(0.001)

        readers = [client.subscribe(subject, durable="work", mode="shared", idle=0.5) for _ in range(4)]
        await asyncio.gather(*(one.run(handle, concurrency=5) for one in readers))
        assert seen == Counter(result.unwrap().sequence for result in results)
        consumer = await client.consumers.get(subject, "work")
        assert (consumer.lag, consumer.outstanding) == (0, 0)


def test_a_message_that_always_fails_becomes_a_dead_letter_and_can_be_replayed(client: Client, subject: str) -> None:
    client.consumers.put(subject, "work", mode="shared", max_deliver=2)
    client.publish_batch(subject, [b"good", b"bad", b"good"])
    tries: Counter[bytes] = Counter()

    def handle(delivery: Delivery) -> None:
        tries[delivery.data()] += 1
        if delivery.data() == b"bad":
            raise ValueError("always")

    client.subscribe(subject, durable="work", mode="shared", idle=1).run(handle, retry_delay=0.1)
    assert tries == {b"good": 2, b"bad": 2}
    (letter,) = client.dead_letters.fetch(subject).messages
    assert client.payload(letter) == b"bad"
    assert letter.headers["mts-dlq-deliveries"] == "2"
    assert client.dead_letters.replay(subject) == 1
    assert client.dead_letters.fetch(subject).messages == ()
    again = client.subscribe(subject, durable="work", mode="shared", idle=0)
    assert [delivery.data() for delivery in again] == [b"bad"]


READ_AND_WAIT = """
import sys, time
from minitoolstream.client import Client
client = Client()
subscription = client.subscribe(sys.argv[1], durable="d", mode=sys.argv[2], prefetch=4, **eval(sys.argv[3]))
for delivery in subscription:
    print(delivery.sequence)
    if delivery.sequence == int(sys.argv[4]):
        time.sleep(3600)
"""


def test_what_a_killed_reader_had_leased_comes_to_another(live: Live, client: Client, subject: str) -> None:
    sequences = publish(client, subject, 4)
    process = reader(READ_AND_WAIT, live, subject, "shared", "{'lease': 2}", str(sequences[1]))
    assert process.stdout
    assert [int(process.stdout.readline()) for _ in range(2)] == sequences[:2]
    process.kill()
    process.communicate()
    with client.subscribe(subject, durable="d", mode="shared", idle=4) as subscription:
        found = [delivery.sequence for delivery in subscription]
    assert set(found) >= set(sequences[1:])  # the first may have been acked
    assert client.consumers.get(subject, "d").outstanding == 0


def test_a_killed_ordered_reader_loses_nothing(live: Live, client: Client, subject: str) -> None:
    sequences = publish(client, subject, 6)
    process = reader(READ_AND_WAIT, live, subject, "ordered", "{}", str(sequences[3]))
    assert process.stdout
    assert [int(process.stdout.readline()) for _ in range(4)] == sequences[:4]
    eventually(lambda: client.consumers.get(subject, "d").last_sequence >= sequences[2])  # at least every second
    process.kill()
    process.communicate()
    found = [delivery.sequence for delivery in client.subscribe(subject, durable="d", idle=0)]
    assert found == sequences[3:]


HANDLERS = """
import sys, time
from minitoolstream.client import Client
with Client() as client:
    subscriber = client.subscriber()
    @subscriber.on(sys.argv[1], durable="d", mode="shared", concurrency=2, prefetch=10)
    def handle(delivery):
        sys.stdout.write(f"begin {delivery.sequence}\\n")  # in one piece: two handlers write at once
        time.sleep(0.5)
        sys.stdout.write(f"end {delivery.sequence}\\n")
    subscriber.run()
print("stopped")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_handlers_end_gracefully_at_a_signal(live: Live, client: Client, subject: str, number: signal.Signals) -> None:
    sequences = publish(client, subject, 10)
    process = reader(HANDLERS, live, subject)
    assert process.stdout
    assert process.stdout.readline().startswith("begin")
    process.send_signal(number)
    lines = process.stdout.read().split()
    assert process.wait(30) == 0
    assert lines[-1] == "stopped"
    done = lines.count("end")
    assert 1 <= done <= 4
    # What was handled is acked, the rest is another's at once, without waiting for a lease to end.
    with client.subscribe(subject, durable="d", mode="shared", idle=0) as subscription:
        left = [delivery.sequence for delivery in subscription]
    assert len(left) == 10 - done
    assert set(left) < set(sequences)


# -- partitions shared by sessions


async def test_sessions_share_partitions_and_take_over_when_one_leaves(live: Live, subject: str) -> None:
    async with AsyncClient(live.url, live.token) as client:
        await client.subjects.put(subject, partitions=4)
        seen: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
        stop_two = asyncio.Event()

        async def read(name: str) -> None:
            async with client.subscribe(subject, durable="d", session=name) as subscription:
                while not (name == "two" and stop_two.is_set()):
                    try:
                        async with asyncio.timeout(0.5):
                            delivery = await anext(subscription)
                    except TimeoutError:
                        continue
                    seen[name].append((delivery.message.partition, delivery.sequence))
                    if delivery.headers.get("last"):
                        return

        readers = [asyncio.create_task(read(name)) for name in ("one", "two")]
        await asyncio.to_thread(eventually, lambda: live_sessions(live, subject) == 2)
        expected: list[int] = []

        async def publish_some() -> None:
            items = [Item(str(number), group=f"g{number}") for number in range(60)]
            expected.extend(result.unwrap().sequence or 0 for result in await client.publish_batch(subject, items))

        await publish_some()
        await asyncio.to_thread(eventually, lambda: len(seen["one"]) + len(seen["two"]) >= 60)
        assert not {partition for partition, _ in seen["one"]} & {partition for partition, _ in seen["two"]}
        assert seen["one"]
        assert seen["two"]
        stop_two.set()
        await readers[1]
        await publish_some()

        def found() -> set[int]:
            return {sequence for lane in seen.values() for _, sequence in lane}

        await asyncio.to_thread(eventually, lambda: found() == set(expected))
        readers[0].cancel()
        for messages in seen.values():
            for partition in range(4):
                lane = [sequence for one, sequence in messages if one == partition]
                assert lane == sorted(set(lane)), "each partition in order, nothing twice"


def live_sessions(live: Live, subject: str) -> int:
    answer = live.api("GET", f"/v1/subjects/{subject}/consumers/d")
    return int(answer.json.get("sessions", 0)) if answer.status == 200 else 0


async def test_a_namesake_ends_the_older_reader(live: Live, subject: str) -> None:
    async with AsyncClient(live.url, live.token) as client:
        await client.publish(subject, "first")
        async with (
            client.subscribe(subject, durable="d", session="same") as older,
            client.subscribe(subject, durable="d", session="same") as newer,
        ):
            assert (await anext(newer)).headers == {}
            with pytest.raises(MtsError) as caught:
                async for _ in older:
                    pass
            assert caught.value.code == "session_fenced"


# -- publishing


def test_messages_of_a_group_share_a_partition(client: Client, subject: str) -> None:
    client.subjects.put(subject, partitions=4)
    for number in range(12):
        client.publish(subject, b"x", group=f"group {number % 3}", headers={"group": str(number % 3)})
    lanes = {(message.headers["group"], message.partition) for message in client.messages(subject)}
    assert len(lanes) == 3


def test_headers_of_a_producer_session_stand_beneath_those_of_its_messages(client: Client, subject: str) -> None:
    session = client.start_producer(subject, "till", headers={"shop": "7", "kind": "sale"})
    client.publish(subject, b"x", producer_id="till", seqno=1, epoch=session.epoch, headers={"kind": "refund"})
    (message,) = client.messages(subject)
    assert dict(message.headers) == {"shop": "7", "kind": "refund"}


def test_a_codec_that_a_subject_does_not_allow_is_refused(client: Client, subject: str) -> None:
    client.subjects.put(subject, codecs=["raw", "zstd"])
    client.publish(subject, b"x", codec="zstd")
    with pytest.raises(MtsError) as caught:
        client.publish(subject, b"x", codec="gzip")
    assert caught.value.code == "codec_not_allowed"


def test_a_subject_is_made_altered_listed_and_deleted(client: Client, subject: str) -> None:
    made = client.subjects.put(subject, partitions=2, quota={"messages": 2})
    assert len(made.partitions) == 2
    client.publish(subject, b"one")
    client.publish(subject, b"two")
    with pytest.raises(MtsError) as caught:
        client.publish(subject, b"three")
    assert caught.value.code == "quota_exceeded"
    client.subjects.put(subject, quota={"messages": None})
    client.publish(subject, b"three")
    assert [(info.subject, info.messages) for info in client.subjects.list(subject)] == [(subject, 3)]
    client.subjects.delete(subject)
    with pytest.raises(MtsError) as caught:
        client.subjects.get(subject)
    assert caught.value.code == "unknown_subject"
