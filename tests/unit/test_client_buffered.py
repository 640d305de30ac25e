"""The buffered publishers, and the sync client with its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import Client, MtsError, Receipt
from tests.unit.fake_host import HOSTS, TOKEN, FakeHost, api_error


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def client(host: FakeHost, tmp_path: Path) -> Iterator[Client]:
    client = Client(HOSTS[0], TOKEN)
    client._client = host.client(tmp_path / "state")
    with client:
        yield client


async def test_messages_travel_together_and_in_order(host: FakeHost) -> None:
    async with host.client().buffered("orders", linger=60) as publisher:
        futures = [await publisher.publish(str(n)) for n in range(100)]
    assert [(await future).sequence for future in futures] == list(range(1, 101))
    assert [message.data for message in host.messages] == [str(n).encode() for n in range(100)]
    assert len(host.asked("/batch")) == 1


async def test_a_full_batch_does_not_wait_for_the_linger(host: FakeHost) -> None:
    async with host.client().buffered("orders", linger=60, batch_bytes=100) as publisher:
        future = await publisher.publish(b"x" * 200)
        assert (await asyncio.wait_for(future, 5)).sequence == 1


async def test_a_lonely_message_is_sent_after_the_linger(host: FakeHost) -> None:
    async with host.client().buffered("orders", linger=0.001) as publisher:
        future = await publisher.publish(b"x")
        assert (await asyncio.wait_for(future, 5)).sequence == 1


async def test_a_future_that_is_cancelled_keeps_no_other_from_its_receipt(host: FakeHost) -> None:
    async with host.client().buffered("orders", linger=60) as publisher:
        futures = [await publisher.publish(str(n)) for n in range(3)]
        futures[1].cancel()
        await asyncio.wait_for(publisher.flush(), 5)
    assert [(await future).sequence for future in futures[::2]] == [1, 3]


def test_a_future_that_another_thread_cancels_at_the_last_moment_disturbs_nobody(client: Client) -> None:
    class Late(Future[Receipt]):
        """Cancelled when it is about to get its result."""

        def set_result(self, result: Receipt) -> None:
            self.cancel()
            super().set_result(result)

    with client.buffered("orders", linger=60) as publisher:
        publisher._buffer.offer(publisher._outlet.frame(b"0", None, None, None), Late())
        other = publisher.publish(b"1")
        publisher.flush()
        assert other.result(5).sequence == 2


async def test_flush_sends_at_once(host: FakeHost) -> None:
    async with host.client().buffered("orders", linger=60) as publisher:
        future = await publisher.publish(b"x")
        await asyncio.wait_for(publisher.flush(), 5)
        assert future.done()
        await asyncio.wait_for(publisher.flush(), 5)


async def test_memory_is_bounded_because_publish_waits(host: FakeHost) -> None:
    release = asyncio.Event()
    original = host.request
    largest = 0

    async def slow(*args: object, **kwargs: object) -> object:
        await release.wait()
        return await original(*args, **kwargs)  # type: ignore[arg-type]

    host.request = slow  # type: ignore[method-assign,assignment]
    async with host.client().buffered("orders", linger=0, batch_bytes=100, max_bytes=1000) as publisher:
        producing = asyncio.create_task(_publish_many(publisher, 100))
        for _ in range(50):
            await asyncio.sleep(0)
            largest = max(largest, publisher._buffer._held_bytes)
        waiting = not producing.done()
        release.set()
        await producing
    assert waiting
    assert largest <= 1000
    assert len(host.messages) == 100


async def _publish_many(publisher: object, count: int) -> None:
    for _ in range(count):
        await publisher.publish(b"x" * 50)  # type: ignore[attr-defined]


async def test_a_bad_message_fails_alone_and_leaving_the_block_says_so(host: FakeHost) -> None:
    publisher = await host.client().buffered("orders", linger=60).__aenter__()
    good = await publisher.publish(b"a")
    bad = await publisher.publish(b"b", headers={"bad": "1"})
    with pytest.raises(MtsError, match="1 of the buffered messages") as caught:
        await publisher.__aexit__(None, None, None)
    assert caught.value.details["failed"] == 1
    assert (await good).sequence == 1
    with pytest.raises(MtsError, match="bad header"):
        await bad


async def test_an_error_in_the_block_is_not_hidden_by_a_failed_message(host: FakeHost) -> None:
    async def divide() -> None:
        async with host.client().buffered("orders", linger=60) as publisher:
            await publisher.publish(b"b", headers={"bad": "1"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await divide()


async def test_after_a_failed_call_the_publisher_goes_on(host: FakeHost) -> None:
    host.once("/batch", api_error(503, "unavailable"))
    async with host.client().buffered("orders", linger=60) as publisher:
        lost = await publisher.publish(b"a")
        with pytest.raises(MtsError, match="unavailable happened"):
            await publisher.flush()
        stored = await publisher.publish(b"b")
    assert (await stored).sequence == 1
    assert isinstance(lost.exception(), MtsError)


async def test_a_named_producer_is_numbered_behind_what_it_stored(host: FakeHost) -> None:
    async with host.client().buffered("orders", producer_id="till", headers={"a": "1"}) as publisher:
        await publisher.publish(b"a")
        await publisher.publish(b"b", headers={"b": "2"})
    metas = [message.meta for message in host.messages]
    assert [(meta["producer_id"], meta["seqno"], meta["epoch"]) for meta in metas] == [("till", 42, 3), ("till", 43, 3)]
    assert metas[1]["headers"] == {"a": "1", "b": "2"}


async def test_a_closed_publisher_refuses(host: FakeHost) -> None:
    publisher = host.client().buffered("orders")
    with pytest.raises(MtsError, match="async with"):
        await publisher.publish(b"a")
    async with publisher:
        pass
    with pytest.raises(MtsError, match="closed"):
        await publisher.publish(b"a")
    await asyncio.wait_for(publisher.flush(), 5)


# -- the sync client


def test_the_sync_client_does_what_the_async_one_does(client: Client, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"file")
    assert client.publish("orders", b"one").sequence == 1
    receipt = client.publish_file("orders", tmp_path / "source")
    assert receipt.upload_id
    assert client.receipt(receipt.upload_id, wait=1).sequence == 2
    assert client.complete(receipt.upload_id).sequence == 2
    with pytest.raises(MtsError) as caught:
        client.abort(receipt.upload_id)
    assert caught.value.code == "upload_final"
    assert client.publish_batch("orders", [b"three"])[0].unwrap().sequence == 3
    assert client.latest("orders") == 3
    assert [message.sequence for message in client.fetch("orders").messages] == [1, 2, 3]
    assert [message.sequence for message in client.messages("orders")] == [1, 2, 3]
    assert [message.data for message in client.read("orders", start=2)] == [b"file", b"three"]
    assert client.payload(client.get(1)) == b"one"
    client.download(2, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"file"
    assert client.start_producer("orders", "till").epoch == 3
    assert client.reconcile() == {"committed": 2, "expired": 1}


def test_an_iteration_may_be_left_early(client: Client) -> None:
    client.publish_batch("orders", [b"1", b"2", b"3"])
    for message in client.read("orders"):
        assert message.sequence == 1
        break


def test_buffered_from_many_threads_keeps_each_threads_order(client: Client, host: FakeHost) -> None:
    with client.buffered("orders", linger=0.001, batch_bytes=500, max_bytes=2000) as publisher:

        def produce(name: int) -> list[Future[Receipt]]:
            return [publisher.publish(f"{name} {n}") for n in range(50)]

        with ThreadPoolExecutor(8) as threads:
            futures = list(threads.map(produce, range(8)))
        publisher.flush()
        assert all(future.done() for mine in futures for future in mine)
    for name, mine in enumerate(futures):
        sequences = [future.result().sequence or 0 for future in mine]
        assert sequences == sorted(sequences)
        assert [host.messages[n - 1].data.decode() for n in sequences] == [f"{name} {n}" for n in range(50)]


def test_a_failed_message_of_a_sync_publisher_surfaces(client: Client) -> None:
    publisher = client.buffered("orders")
    with pytest.raises(MtsError, match=r"with client\.buffered"):
        publisher.publish(b"too early")
    with pytest.raises(MtsError, match="were not published"), publisher:
        publisher.publish(b"b", headers={"bad": "1"})


def test_a_closed_client_refuses_and_closing_twice_is_fine() -> None:
    client = Client(HOSTS[0], TOKEN)
    client.close()
    client.close()
    with pytest.raises(MtsError, match="closed"):
        client.latest("orders")


def test_closing_ends_what_another_thread_waits_for(client: Client, host: FakeHost) -> None:
    started = hanging(host)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.latest, "orders")
        assert started.wait(5)
        client.close()
        assert code_of(waiting) == "closed"


def hanging(host: FakeHost) -> threading.Event:
    """From now on no request is answered; the event is set when the first has come."""
    started = threading.Event()

    async def forever(*_: object, **__: object) -> None:
        started.set()
        await asyncio.Event().wait()

    host.request = forever  # type: ignore[method-assign,assignment]
    return started


def code_of(future: Future[Any]) -> str:
    error = future.exception(5)
    assert isinstance(error, MtsError)
    return error.code


def test_closing_the_client_ends_every_wait_for_a_buffered_message(client: Client, host: FakeHost) -> None:
    started = hanging(host)
    publisher = client.buffered("orders", linger=0, batch_bytes=100, max_bytes=300).__enter__()
    under_way = publisher.publish(b"x" * 100)
    assert started.wait(5)
    waiting = publisher.publish(b"y" * 60)
    with ThreadPoolExecutor(2) as threads:
        blocked = threads.submit(publisher.publish, b"z" * 250)
        flushing = threads.submit(publisher.flush)
        client.close()
        assert code_of(under_way) == "outcome_unknown"
        assert code_of(waiting) == "closed"
        assert code_of(blocked) == "closed"
        assert code_of(flushing) == "closed"
    with pytest.raises(MtsError, match="2 of the buffered messages were not published"):
        publisher.__exit__(None, None, None)
    with pytest.raises(MtsError, match="closed"):
        publisher.publish(b"too late")


async def test_closing_an_async_client_fails_what_is_buffered_at_once(host: FakeHost) -> None:
    client = host.client()
    publisher = await client.buffered("orders", linger=60).__aenter__()
    future = await publisher.publish(b"a")
    await client.close()
    with pytest.raises(MtsError, match="1 of the buffered messages"):
        await publisher.__aexit__(None, None, None)
    error = future.exception()
    assert isinstance(error, MtsError)
    assert error.code == "closed"
    assert host.pauses == []


async def test_a_cancelled_async_publisher_leaves_no_future_open(host: FakeHost) -> None:
    publisher = await host.client().buffered("orders", linger=60).__aenter__()
    future = await publisher.publish(b"a")
    await asyncio.sleep(0)
    assert publisher._task
    publisher._task.cancel()
    with pytest.raises(MtsError, match="client was closed"):
        await asyncio.wait_for(future, 5)
