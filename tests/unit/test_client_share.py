"""Readers that share work: leases of shared durables, partitions of ordered ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from minitoolstream.client import AsyncClient, AsyncDelivery, Item, MtsError
from minitoolstream.client import _feed_session as sessions
from minitoolstream.client._entries import Stage
from minitoolstream.net.http1 import HttpResponse
from tests.unit.fake_delivery import DeliveryHost
from tests.unit.fake_host import api_error, break_after, refuse_connection


async def filled(count: int = 5, partitions: int = 1) -> tuple[DeliveryHost, AsyncClient]:
    host = DeliveryHost()
    host.owned = tuple(range(partitions))
    client = host.client()
    items = [Item(f"message {n}", headers={"partition": str(n % partitions)}) for n in range(1, count + 1)]
    await client.publish_batch("orders", items)
    host.log.clear()
    return host, client


async def until(check: Callable[[], object], within: float = 5.0) -> None:
    deadline = asyncio.get_running_loop().time() + within
    while not check():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


# -- leases


async def test_what_was_handled_is_acked_by_its_lease_in_few_calls() -> None:
    host, client = await filled(30)
    async with client.subscribe("orders", durable="work", mode="shared", idle=0) as work:
        assert [delivery.sequence async for delivery in work] == list(range(1, 31))
    assert host.durables["work"].done == set(range(1, 31))
    assert len(host.asked("/ack")) <= 4


async def test_closing_gives_back_what_was_never_handed_out() -> None:
    host, client = await filled(5)
    async with client.subscribe("orders", durable="work", mode="shared") as work:
        await anext(work)
        await anext(work)
    assert host.durables["work"].done == {1, 2}
    assert host.durables["work"].leased == {}
    assert [(nack["sequences"], nack["delay"], nack["untried"]) for nack in host.nacks] == [([3, 4, 5], 0, True)]
    assert host.durables["work"].tries == {1: 1, 2: 1, 3: 0, 4: 0, 5: 0}


async def test_a_message_in_hand_is_given_back_when_its_block_fails() -> None:
    host, client = await filled(2)

    async def fail() -> None:
        async with client.subscribe("orders", durable="work", mode="shared") as work:
            await anext(work)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail()
    assert host.durables["work"].done == set()
    assert host.durables["work"].leased == {}
    assert host.durables["work"].tries == {1: 1, 2: 0}, "one was tried, the other read ahead"


async def test_ack_and_nack_by_hand() -> None:
    host, client = await filled(3)
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual", prefetch=3) as work:
        first, second, third = [await anext(work) for _ in range(3)]
        await third.ack()
        assert host.durables["work"].done == {3}
        await second.nack(delay=7)
        assert host.nacks[0]["sequences"] == [2]
        assert host.nacks[0]["delay"] == 7
        await work.ack([first])
        with pytest.raises(MtsError) as caught:
            await second.ack()
    assert caught.value.code == "lease_lost"
    assert host.durables["work"].done == {1, 3}


async def test_a_lost_lease_is_told_and_does_not_hold_up_the_acks_of_others() -> None:
    host, client = await filled(4)
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual") as work:
        deliveries = [await anext(work) for _ in range(4)]
        host.durables["work"].leased[2] = "another reader's"
        with pytest.raises(MtsError) as caught:
            await work.ack(deliveries)
    assert caught.value.code == "lease_lost"
    assert host.durables["work"].done == {1, 3, 4}


@pytest.mark.parametrize("count", [1, 3])
async def test_an_ack_that_counted_is_not_said_to_be_lost_when_its_answer_was(count: int) -> None:
    host, client = await filled(4)
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual") as work:
        deliveries = [await anext(work) for _ in range(count)]
        host.once("/ack", break_after)
        with pytest.raises(MtsError) as caught:
            await work.ack(deliveries)
        assert {delivery._entry.loss.code for delivery in deliveries if delivery._entry.loss} == {"outcome_unknown"}
        last = await anext(work)
        host.durables["work"].leased[last.sequence] = "another reader's"
        with pytest.raises(MtsError) as lost:
            await last.ack()
    assert caught.value.code == "outcome_unknown"
    assert host.durables["work"].done == set(range(1, count + 1))
    assert lost.value.code == "lease_lost", "one that was not sent twice is known to be lost"


async def test_an_ack_that_gave_up_and_had_counted_is_not_said_to_be_lost_later() -> None:
    host = DeliveryHost()
    client = host.client(seconds=0)
    await client.publish("orders", "one")
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual") as work:
        delivery = await anext(work)
        host.once("/ack", break_after)
        for code in ("unreachable", "outcome_unknown"):
            with pytest.raises(MtsError) as caught:
                await delivery.ack()
            assert caught.value.code == code
    assert host.durables["work"].done == {1}


async def test_an_ack_of_a_message_whose_lease_is_being_extended_counts() -> None:
    host, client = await filled(1)
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual") as work:
        delivery = await anext(work)

        def acked_first(act: Callable[[], HttpResponse]) -> HttpResponse:
            host.durables["work"].leased.clear()
            delivery._entry.stage = Stage.DONE
            return act()

        host.once("/extend", acked_first)
        await work._intake.feed.keep()
        assert delivery._entry.loss is None


async def test_a_message_whose_delivery_is_gone_is_not_kept_from_others_for_ever() -> None:
    host, client = await filled(3)
    async with client.subscribe("orders", durable="work", mode="shared", ack="manual", lease=1) as work:
        kept, dropped = await anext(work), await anext(work)
        in_transaction = await anext(work)
        in_transaction._entry.stage = Stage.IN_TRANSACTION
        gone = dropped._entry
        del dropped, in_transaction
        await until(lambda: len(host.asked("/extend")) >= 2)
        extended = [msgspec.json.decode(body)["sequences"] for body in host.bodies if b'"sequences"' in body]
        assert extended[-1] == [1, 3], "its lease ends, and it comes again"
        with pytest.raises(MtsError) as caught:
            await work.ack([AsyncDelivery(gone, work._intake)])
        assert caught.value.code == "lease_lost"
        await kept.ack()


async def test_with_automatic_acks_a_lease_is_kept_whatever_becomes_of_the_delivery() -> None:
    host, client = await filled(1)
    async with client.subscribe("orders", durable="work", mode="shared", lease=1) as work:
        await anext(work)
        await until(lambda: len(host.asked("/extend")) >= 2)
        assert host.durables["work"].leased == {1: "lease-1"}


async def test_leases_are_kept_while_messages_are_handled() -> None:
    host, client = await filled(2)
    async with client.subscribe("orders", durable="work", mode="shared", lease=1) as work:
        await anext(work)
        await until(lambda: len(host.asked("/extend")) >= 2)


async def test_a_failing_handler_gives_back_and_the_next_try_is_later() -> None:
    host, client = await filled(3)
    tries: list[tuple[int, int]] = []

    async def handle(delivery: AsyncDelivery) -> None:
        tries.append((delivery.sequence, delivery.deliveries))
        if delivery.sequence == 2 and delivery.deliveries < 3:
            raise ValueError("not yet")

    await client.subscribe("orders", durable="work", mode="shared", idle=0.1).run(handle, retry_delay=0.5)
    assert host.durables["work"].done == {1, 2, 3}
    assert [deliveries for sequence, deliveries in tries if sequence == 2] == [1, 2, 3]
    assert [nack["delay"] for nack in host.nacks] == [0.5, 1.0]


async def test_the_last_try_is_not_said_to_be_given_back(caplog: pytest.LogCaptureFixture) -> None:
    host, client = await filled(1)
    await client.consumers.put("orders", "work", mode="shared", max_deliver=2)

    async def handle(_: AsyncDelivery) -> None:
        raise ValueError("never")

    await client.subscribe("orders", durable="work", mode="shared", idle=0.1).run(handle, retry_delay=0.01)
    first, last = [record.getMessage() for record in caplog.records if "a handler failed" in record.getMessage()]
    assert "it is given back" in first
    assert "dead letter" in last
    assert "given back" not in last
    assert len(host.nacks) == 2


async def test_an_outage_that_a_handler_meets_is_not_a_try_of_its_message() -> None:
    host, client = await filled(1)
    tries: list[int] = []

    async def handle(delivery: AsyncDelivery) -> None:
        tries.append(delivery.deliveries)
        if len(tries) < 3:
            raise MtsError("unavailable", "the object store does not answer")

    await client.subscribe("orders", durable="work", mode="shared", idle=0.1).run(handle, retry_delay=0.01)
    assert tries == [1, 1, 1]
    assert host.durables["work"].done == {1}


async def test_handlers_of_a_shared_durable_run_at_once() -> None:
    _, client = await filled(4)
    together = asyncio.Barrier(4)

    async def handle(_: AsyncDelivery) -> None:
        async with asyncio.timeout(5):
            await together.wait()

    await client.subscribe("orders", durable="work", mode="shared", idle=0.1).run(handle, concurrency=4)


# -- sessions


async def test_a_session_joins_acks_with_its_fences_and_leaves() -> None:
    host, client = await filled(6, partitions=2)
    async with client.subscribe("orders", durable="d", session="one", idle=0.1) as orders:
        assert [delivery.sequence async for delivery in orders] == [1, 2, 3, 4, 5, 6]
    assert host.durables["d"].acked == {0: 6, 1: 5}
    assert host.durables["d"].epochs == {}
    assert {ack["epoch"] for ack in host.acks} == {1}
    assert all(lane["fence"] == 1 for ack in host.acks for lane in ack["partitions"])


async def test_messages_of_a_lost_partition_are_dropped_and_their_acks_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TTL", 30)
    host, client = await filled(8, partitions=2)
    async with client.subscribe("orders", durable="d", session="one", ack="manual") as orders:
        first, second = await anext(orders), await anext(orders)
        assert (first.message.partition, second.message.partition) == (1, 0)
        host.owned = (0,)
        await orders._intake.feed.keep()  # what the next heartbeat does
        assert (await anext(orders)).sequence == 4
        with pytest.raises(MtsError) as caught:
            await first.ack()
        assert caught.value.code == "partition_lost"
        await second.ack()
    assert host.durables["d"].acked == {0: 2}


@pytest.mark.parametrize("told", [True, False])
async def test_after_a_seek_a_session_is_told_that_it_was_moved_not_that_it_lost_its_partition(told: bool) -> None:
    host, client = await filled(3)
    async with client.subscribe("orders", durable="d", session="one", ack="manual") as orders:
        deliveries = [await anext(orders) for _ in range(3)]
        if told:
            await client.consumers.seek("orders", "d", 1)
            await orders._intake.feed.keep()
        else:
            host.durables["d"].move(0)
        with pytest.raises(MtsError) as caught:
            await deliveries[2].ack()
        assert caught.value.code == "position_moved"
        assert host.durables["d"].acked == {}
        assert (await anext(orders)).sequence == 1


async def test_an_ack_that_is_refused_for_one_partition_still_counts_for_the_others() -> None:
    host, client = await filled(4, partitions=2)
    async with client.subscribe("orders", durable="d", session="one", ack="manual") as orders:
        deliveries = [await anext(orders) for _ in range(4)]
        host.owned = (0,)
        with pytest.raises(MtsError) as caught:
            await orders.ack(deliveries)
    assert caught.value.code == "partition_lost"
    assert host.durables["d"].acked == {0: 4}


async def test_a_session_that_the_host_dropped_joins_again_and_reads_on_from_its_acks() -> None:
    host, client = await filled(4)
    async with client.subscribe("orders", durable="d", session="one", ack="manual", prefetch=2) as orders:
        first = await anext(orders)
        await first.ack()
        host.durables["d"].epochs.clear()
        host.durables["d"].fence += 1
        found = [(await anext(orders)).sequence for _ in range(4)]
    assert found[-3:] == [2, 3, 4]
    assert len(host.asked("POST host-a/v1/subjects/orders/consumers/d/sessions")) >= 2


async def test_a_namesake_ends_the_older_reader_with_a_clear_error() -> None:
    host, client = await filled(1)
    async with client.subscribe("orders", durable="d", session="one") as older:
        await anext(older)
        host.durables["d"].epochs["one"] += 1
        with pytest.raises(MtsError) as caught:
            await anext(older)
    assert caught.value.code == "session_fenced"


async def test_heartbeats_survive_a_host_that_is_away() -> None:
    host, client = await filled(1)
    async with client.subscribe("orders", durable="d", session="one") as orders:
        orders._intake.feed.beat = 0.01
        await anext(orders)
        host.once("/heartbeat", refuse_connection, api_error(503, "unavailable"))
        await client.publish("orders", "second")
        assert (await anext(orders)).sequence == 2
