"""Subscriptions: what is handed out, what is acked and when, and what happens when something breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest

from minitoolstream.client import AsyncClient, AsyncDelivery, Client, Item, MtsError
from tests.unit.fake_delivery import DeliveryHost
from tests.unit.fake_host import HOSTS, TOKEN, answer, api_error, break_before, refuse_connection


async def filled(count: int = 5, **headers: str) -> tuple[DeliveryHost, AsyncClient]:
    host = DeliveryHost()
    client = host.client()
    await client.publish_batch("orders", [Item(f"message {n}", headers=headers) for n in range(1, count + 1)])
    host.log.clear()
    return host, client


async def until(check: Callable[[], object], within: float = 5.0) -> None:
    deadline = asyncio.get_running_loop().time() + within
    while not check():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def acks(host: DeliveryHost) -> list[str]:
    return [line for line in host.log if line.endswith("/ack")]


# -- without a durable


async def test_a_reader_without_a_durable_gets_everything_and_leaves_no_trace() -> None:
    host, client = await filled()
    async with client.subscribe("orders", idle=0) as orders:
        found = [(delivery.sequence, await delivery.data()) async for delivery in orders]
    assert found == [(n, f"message {n}".encode()) for n in range(1, 6)]
    assert not host.asked("/consumers")


async def test_new_is_resolved_once_so_that_a_reconnect_loses_nothing() -> None:
    host, client = await filled(2)
    async with client.subscribe("orders", start="new") as orders:
        coming = asyncio.ensure_future(anext(orders))
        await until(lambda: len(host.asked("/subscribe")) >= 2)
        host.once("/subscribe", refuse_connection)
        await client.publish("orders", "third")
        assert (await coming).sequence == 3
    assert [line.partition("start=")[2].partition("&")[0] for line in host.asked("/subscribe")][:2] == ["new", "3"]


async def test_a_defect_ends_the_loop_instead_of_leaving_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("no such field")

    _, client = await filled()
    monkeypatch.setattr("minitoolstream.client._feeds.EphemeralFeed.poll", broken)
    async with client.subscribe("orders") as orders:
        with pytest.raises(MtsError, match="no such field") as caught:
            await asyncio.wait_for(anext(orders), 5)
    assert caught.value.code == "internal"


async def test_a_time_needs_a_zone() -> None:
    _, client = await filled()
    with pytest.raises(MtsError, match="time zone"):
        client.subscribe("orders", start=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_filter_is_escaped_on_its_way() -> None:
    host, client = await filled(1, kind="a")
    async with client.subscribe("orders", filter=["kind=a"], idle=0) as orders:
        assert [delivery.sequence async for delivery in orders] == [1]
    assert host.asked("filter=kind%3Da")
    with pytest.raises(MtsError, match="name=value"):
        client.subscribe("orders", filter="kind")


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "shared"},
        {"session": "a"},
        {"durable": "d", "mode": "shared", "session": "a"},
        {"durable": "d", "partition": 0},
        {"lease": 30},
        {"ack": "never"},
        {"prefetch": 0},
        {"idle": -1},
    ],
)
async def test_arguments_that_do_not_fit_are_refused_at_once(wrong: dict[str, object]) -> None:
    host, client = await filled()
    with pytest.raises(MtsError) as caught:
        client.subscribe("orders", **wrong)  # type: ignore[arg-type]
    assert caught.value.code == "bad_request"
    assert not host.log


# -- a durable


async def test_a_durable_is_made_and_its_position_is_what_the_loop_has_finished() -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="billing", idle=0) as orders:
        assert [delivery.sequence async for delivery in orders] == [1, 2, 3, 4, 5]
    assert host.durables["billing"].position == 5
    async with client.subscribe("orders", durable="billing", idle=0) as orders:
        assert [delivery.sequence async for delivery in orders] == []


async def test_acks_do_not_cost_a_call_a_message() -> None:
    host, client = await filled(400)
    async with client.subscribe("orders", durable="billing", idle=0) as orders:
        assert len([delivery async for delivery in orders]) == 400
    assert len(acks(host)) <= 3


async def test_a_message_in_hand_is_not_acked_when_its_block_fails() -> None:
    host, client = await filled()

    async def fail_at_third() -> None:
        async with client.subscribe("orders", durable="billing") as orders:
            async for delivery in orders:
                if delivery.sequence == 3:
                    raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail_at_third()
    assert host.durables["billing"].position == 2


async def test_a_message_in_hand_is_acked_when_its_block_ends() -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="billing") as orders:
        async for delivery in orders:
            if delivery.sequence == 3:
                break
    assert host.durables["billing"].position == 3


async def test_acks_go_out_while_the_reader_waits_for_more() -> None:
    host, client = await filled(2)
    async with client.subscribe("orders", durable="billing") as orders:
        for _ in range(2):
            await anext(orders)
        waiting = asyncio.ensure_future(anext(orders))
        await until(lambda: host.durables["billing"].position == 2)
        waiting.cancel()


async def test_a_manual_ack_is_cumulative_and_known_to_the_host_when_it_returns() -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="billing", ack="manual") as orders:
        deliveries = [await anext(orders) for _ in range(4)]
        assert host.durables["billing"].position == 0
        await deliveries[2].ack()
        assert host.durables["billing"].position == 3
    assert host.durables["billing"].position == 3


async def test_what_a_filter_passed_over_counts_as_read() -> None:
    host, client = await filled(2, kind="a")
    await client.publish_batch("orders", [Item("b", headers={"kind": "b"})] * 3)
    async with client.subscribe("orders", durable="billing", filter="kind=a", idle=0) as orders:
        assert [delivery.sequence async for delivery in orders] == [1, 2]
    assert host.durables["billing"].position == 5


async def test_a_seek_back_is_followed_by_a_reader() -> None:
    host, client = await filled(3)
    async with client.subscribe("orders", durable="billing") as orders:
        for _ in range(3):
            await anext(orders)
        again = asyncio.ensure_future(anext(orders))
        await until(lambda: host.durables["billing"].position == 3)
        await client.consumers.seek("orders", "billing", "first")
        assert (await again).sequence == 1


async def test_a_seek_is_not_undone_by_the_ack_of_what_was_read_before_it() -> None:
    host, client = await filled(4)
    async with client.subscribe("orders", durable="billing", ack="manual") as orders:
        deliveries = [await anext(orders) for _ in range(4)]
        host.durables["billing"].fence += 1  # sought, back to where it was: no page has told of it yet
        with pytest.raises(MtsError) as caught:
            await deliveries[3].ack()
        assert caught.value.code == "position_moved"
        assert host.durables["billing"].position == 0
        again = [await anext(orders) for _ in range(4)]
        assert [delivery.sequence for delivery in again] == [1, 2, 3, 4]
        await again[3].ack()
    assert host.durables["billing"].position == 4


async def test_a_seek_forward_drops_what_was_read_ahead() -> None:
    host, client = await filled(10)
    async with client.subscribe("orders", durable="billing", prefetch=4) as orders:
        await anext(orders)
        host.durables["billing"].position = 8
        found = [1]
        while found[-1] < 10:
            found.append((await anext(orders)).sequence)
    assert found[-2:] == [9, 10]
    assert not {5, 6, 7, 8} & set(found)


async def test_batches_are_acked_when_the_next_is_asked_for() -> None:
    host, client = await filled(5)
    sizes = []
    async with client.subscribe("orders", durable="billing", idle=0) as orders:
        async for batch in orders.batches(max_messages=2, max_wait=0.05):
            sizes.append(len(batch))
    assert sizes == [2, 2, 1]
    assert host.durables["billing"].position == 5


# -- when something breaks


async def test_a_host_that_restarts_is_waited_for_without_loss_or_doubles() -> None:
    host, client = await filled(3)
    async with client.subscribe("orders", durable="billing", prefetch=2, idle=0.3) as orders:
        found = [(await anext(orders)).sequence]
        host.once("/subscribe", *[refuse_connection] * 40, break_before)
        host.once("/ack", *[refuse_connection] * 5)
        found += [delivery.sequence async for delivery in orders]
    assert found == [1, 2, 3]
    assert host.durables["billing"].position == 3


async def test_a_host_that_is_not_there_at_first_is_an_error() -> None:
    host, client = await filled()
    host.down.add(HOSTS[0])
    with pytest.raises(MtsError) as caught:
        await anext(client.subscribe("orders", durable="billing"))
    assert caught.value.code == "unreachable"


@pytest.mark.parametrize("start", ["first", 1])
async def test_the_first_read_without_a_durable_gives_up_too(start: str | int) -> None:
    host = DeliveryHost()
    host.down = set(HOSTS)
    async with host.client(seconds=2).subscribe("orders", start=start) as orders:  # type: ignore[arg-type]
        with pytest.raises(MtsError) as caught:
            await asyncio.wait_for(anext(orders), 5)
    assert caught.value.code == "unreachable"
    assert host.now <= 2


async def test_a_durable_that_is_deleted_ends_its_readers_with_a_clear_error() -> None:
    _, client = await filled(1)
    async with client.subscribe("orders", durable="billing") as orders:
        await anext(orders)
        await client.consumers.delete("orders", "billing")
        with pytest.raises(MtsError) as caught:
            await anext(orders)
    assert caught.value.code == "unknown_durable"


async def test_the_wrong_mode_is_a_clear_error() -> None:
    _, client = await filled()
    await client.consumers.put("orders", "billing", mode="shared")
    with pytest.raises(MtsError) as caught:
        await anext(client.subscribe("orders", durable="billing"))
    assert caught.value.code == "mode_mismatch"


async def test_closing_the_client_closes_its_subscriptions_and_acks_what_was_done() -> None:
    host, client = await filled()
    orders = client.subscribe("orders", durable="billing")
    for _ in range(3):
        await anext(orders)
    await client.close()
    assert host.durables["billing"].position == 2


# -- memory


async def test_no_more_is_read_ahead_than_allowed() -> None:
    host, client = await filled(100)
    async with client.subscribe("orders", prefetch=10) as orders:
        await anext(orders)
        await until(lambda: len(orders._intake._queue) >= 9)
        assert len(orders._intake._queue) <= 10
        assert all("limit=10" in line or "limit=5" in line for line in host.asked("/subscribe"))


async def test_payloads_are_fetched_ahead_up_to_the_byte_limit() -> None:
    host, client = await filled(0)
    host.inline = False
    await client.publish_batch("orders", [b"x" * 100] * 10)
    async with client.subscribe("orders", prefetch_bytes=300, idle=0) as orders:
        first = await anext(orders)
        await until(lambda: len(host.asked("GET store")) >= 4)
        assert len(host.asked("GET store")) == 4  # the one in hand, and 300 bytes behind it
        assert await first.data() == b"x" * 100
        assert len(host.asked("GET store")) == 4
        assert [len(await delivery.data()) async for delivery in orders] == [100] * 9


async def test_a_payload_above_the_limit_stays_in_the_store_until_asked_for() -> None:
    host, client = await filled(0)
    host.inline = False
    await client.publish("orders", b"x" * 100)
    async with client.subscribe("orders", prefetch_bytes=99, idle=0) as orders:
        delivery = await anext(orders)
        assert not host.asked("GET store")
        assert b"".join([block async for block in delivery.stream()]) == b"x" * 100


async def test_a_backlog_is_read_by_whole_packs_and_its_end_by_messages() -> None:
    host, client = await filled(5)
    async with client.subscribe("orders", prefetch=2) as orders:
        found = [await (await anext(orders)).data() for _ in range(5)]
        await client.publish("orders", "message 6")
        assert await (await anext(orders)).data() == b"message 6"
    assert found == [f"message {n}".encode() for n in range(1, 6)]
    forms = ["extents" if "view=extents" in line else "inline" for line in host.asked("/subscribe")]
    assert forms[:2] == ["inline", "extents"]
    assert forms[-1] == "inline"


async def test_a_payload_that_could_not_be_fetched_ahead_is_fetched_when_asked_for() -> None:
    host, client = await filled(4)
    async with client.subscribe("orders", prefetch=2, idle=0) as orders:
        host.once("GET store/pack-3", answer(404, b"<Error><Code>NoSuchKey</Code></Error>"))
        assert [await delivery.data() async for delivery in orders] == [f"message {n}".encode() for n in range(1, 5)]


# -- handlers


async def run_handler(
    client: AsyncClient, handler: Callable[[AsyncDelivery], Awaitable[None]], **options: object
) -> None:
    await client.subscribe("orders", durable="billing", idle=0, **options).run(handler, concurrency=4)  # type: ignore[arg-type]


async def test_ordered_handlers_run_a_partition_at_a_time_and_partitions_together() -> None:
    host, client = await filled(0)
    items = [Item(str(n), headers={"partition": str(n % 3)}) for n in range(30)]
    await client.publish_batch("orders", items)
    running: dict[int, int] = {}
    seen: dict[int, list[int]] = {}
    most = 0

    async def handle(delivery: AsyncDelivery) -> None:
        nonlocal most
        partition = delivery.message.partition
        running[partition] = running.get(partition, 0) + 1
        assert running[partition] == 1
        most = max(most, sum(running.values()))
        await asyncio.sleep(0.002)
        running[partition] -= 1
        seen.setdefault(partition, []).append(delivery.sequence)

    await run_handler(client, handle)
    assert most == 3
    assert all(lane == sorted(lane) for lane in seen.values())
    assert sum(len(lane) for lane in seen.values()) == 30
    assert host.durables["billing"].position == 30


async def test_an_ordered_handler_that_fails_ends_the_subscription_and_nothing_from_there_on_is_acked() -> None:
    host, client = await filled(0)
    await client.publish_batch("orders", [Item(str(n), headers={"partition": str(n % 2)}) for n in range(10)])

    async def handle(delivery: AsyncDelivery) -> None:
        if delivery.sequence == 5:
            raise ValueError("no")

    with pytest.raises(MtsError, match="message 5 of orders") as caught:
        await run_handler(client, handle)
    assert caught.value.code == "handler_failed"
    assert isinstance(caught.value.__cause__, ValueError)
    assert host.durables["billing"].position < 5


# -- the same without asyncio


@pytest.fixture
def host() -> DeliveryHost:
    return DeliveryHost()


@pytest.fixture
def client(host: DeliveryHost) -> Client:
    client = Client(HOSTS[0], TOKEN)
    client._client = host.client()
    client.publish_batch("orders", [f"message {n}" for n in range(1, 6)])
    return client


def test_a_plain_loop_reads_and_acks(client: Client, host: DeliveryHost) -> None:
    with client, client.subscribe("orders", durable="billing", idle=0) as orders:
        found = [(delivery.sequence, delivery.data()) for delivery in orders]
    assert found == [(n, f"message {n}".encode()) for n in range(1, 6)]
    assert host.durables["billing"].position == 5


def test_plain_handlers_run_in_threads_and_a_subscriber_stops_when_told(client: Client, host: DeliveryHost) -> None:
    seen: list[int] = []
    subscriber = client.subscriber()

    @subscriber.on("orders", durable="billing", mode="shared", concurrency=3)
    def handle(delivery: object) -> None:
        seen.append(delivery.sequence)  # type: ignore[attr-defined]
        if len(seen) == 5:
            subscriber.stop()

    with client:
        subscriber.run()
    assert sorted(seen) == [1, 2, 3, 4, 5]
    assert host.durables["billing"].done == {1, 2, 3, 4, 5}


def test_a_failed_call_names_what_the_host_said(client: Client, host: DeliveryHost) -> None:
    host.once("/consumers/billing", api_error(429, "quota_exceeded"))
    with client, pytest.raises(MtsError) as caught:
        next(client.subscribe("orders", durable="billing"))
    assert caught.value.code == "quota_exceeded"
