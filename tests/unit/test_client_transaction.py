"""Transactions: what is sent in one, and what becomes of its acks when it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from minitoolstream.client import AsyncClient, AsyncDelivery, Client, Item, MtsError
from minitoolstream.client._feeds import OrderedFeed
from minitoolstream.net.http1 import HttpResponse
from tests.unit.fake_delivery import DeliveryHost
from tests.unit.fake_host import HOSTS, TOKEN, _error, _json, api_error, break_after

RECEIPT = {"upload_id": "u1", "state": "committed", "sequence": "7", "partition": 0, "offset": 6, "count": 1}


class TransactionHost(DeliveryHost):
    """Keeps acks until the commit; `ended` has what became of transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []
        self.waiting: list[tuple[str, bytes]] = []

    def _api(
        self, method: str, path: list[str], query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        if path == ["transactions"]:
            return _json(201, {"transaction_id": "t1", "state": "open", "expires_at": 0, "rows": 0})
        if path[0] == "transactions":
            self.ended.append(path[2])
            if path[2] == "commit":
                for name, ack in self.waiting:
                    self._ack(self.durables[name], msgspec.json.decode(ack))
            self.waiting = []
            return _json(
                200, {"transaction_id": "t1", "state": path[2], "expires_at": 0, "rows": 0, "receipts": [RECEIPT]}
            )
        if path[-1] == "ack" and (asked := msgspec.json.decode(body)).get("transaction_id"):
            durable = self.durables[path[3]]
            if asked.get("fence", durable.fence) != durable.fence:
                return _error(409, "transaction_conflict")
            self.waiting.append((path[3], body))
            return _json(200, {})
        return super()._api(method, path, query, headers, body)


async def filled(count: int = 3) -> tuple[TransactionHost, AsyncClient]:
    host = TransactionHost()
    client = host.client()
    await client.publish_batch("orders", [f"message {n}" for n in range(1, count + 1)])
    return host, client


async def test_what_is_published_says_its_transaction_in_every_form() -> None:
    host, client = await filled()
    async with client.transaction(timeout=60) as tx:
        await tx.publish("invoices", b"raw")
        assert host.sent_headers[-1]["x-mts-transaction-id"] == "t1"
        await tx.publish("invoices", b"json", headers={"Größe": "7"})
        assert msgspec.json.decode(host.bodies[-1])["transaction_id"] == "t1"
        await tx.publish_batch("invoices", [Item(b"batch"), "text"])
        assert host.sent_headers[-1]["x-mts-transaction-id"] == "t1"
        await tx.publish("invoices", b"x" * (5 << 20))
        ticket = next(body for body in host.bodies if b'"size":' in body)
        assert msgspec.json.decode(ticket)["transaction_id"] == "t1"
    assert host.ended == ["commit"]
    assert [(receipt.state, receipt.sequence) for receipt in tx.receipts] == [("committed", 7)]
    with pytest.raises(MtsError) as caught:
        await tx.publish("invoices", b"late")
    assert caught.value.code == "closed"


async def test_a_file_is_published_in_a_transaction(tmp_path: Path) -> None:
    host, client = await filled()
    (tmp_path / "film.mp4").write_bytes(b"x" * 20)
    async with client.transaction() as tx:
        receipt = await tx.publish_file("films", tmp_path / "film.mp4", headers={"n": "1"})
    assert host.uploads[receipt.upload_id or ""].spec["transaction_id"] == "t1"
    assert host.uploads[receipt.upload_id or ""].spec["content_type"] == "video/mp4"
    assert host.messages[-1].data == b"x" * 20
    with Client(HOSTS[0], TOKEN) as plain:
        plain._client = host.client()
        with plain.transaction() as sync_tx:
            sync_tx.publish_file("films", tmp_path / "film.mp4")
    assert host.ended == ["commit", "commit"]


async def test_a_ticket_whose_answer_was_lost_is_asked_for_under_the_same_key(tmp_path: Path) -> None:
    """A second open upload in the transaction would hold up its commit."""
    host, client = await filled()
    (tmp_path / "a").write_bytes(b"abc")
    host.once("/uploads", break_after)
    async with client.transaction() as tx:
        await tx.publish_file("films", tmp_path / "a")
        await tx.publish_file("films", tmp_path / "a")
        await tx.publish_file("films", tmp_path / "a", producer_id="p", seqno=1)
    tickets = [headers for headers, body in zip(host.sent_headers, host.bodies, strict=True) if b'"size":' in body]
    keys = [headers.get("idempotency-key") for headers in tickets]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] is None


@pytest.mark.parametrize("mode", ["ordered", "shared"])
async def test_acks_of_a_committed_transaction_are_not_sent_again(mode: str) -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="d", mode=mode, idle=0) as orders:  # type: ignore[arg-type]
        async for delivery in orders:
            async with client.transaction() as tx:
                await tx.publish("invoices", await delivery.data())
                await tx.ack(delivery)
    durable = host.durables["d"]
    assert (durable.position == 3) if mode == "ordered" else (durable.done == {1, 2, 3})
    assert all("transaction_id" in ack for ack in host.acks)
    assert host.nacks == []


async def test_a_session_says_from_which_position_of_the_partition_it_acks() -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="d", session="w", ack="manual") as orders:
        for delivery in [await anext(orders) for _ in range(3)]:
            async with client.transaction() as tx:
                await tx.ack(delivery)
    lanes = [lane for ack in host.acks for lane in ack["partitions"]]
    assert [(lane["from"], lane["sequence"]) for lane in lanes] == [(0, 1), (1, 2), (2, 3)]


async def test_a_message_of_a_partition_that_was_acked_and_went_is_not_acked_in_a_transaction() -> None:
    host, client = await filled()
    async with client.subscribe("orders", durable="d", session="w", ack="manual") as orders:
        delivery = await anext(orders)
        await delivery.ack()
        host.owned = ()
        await orders._intake.feed.keep()
        with pytest.raises(MtsError) as caught:
            async with client.transaction() as tx:
                await tx.ack(delivery)
    assert caught.value.code == "partition_lost"


async def test_a_shared_message_of_an_aborted_transaction_comes_again() -> None:
    host, client = await filled(1)
    tries = 0
    async with client.subscribe("orders", durable="d", mode="shared", idle=0.2) as orders:
        async for delivery in orders:
            tries += 1
            try:
                async with client.transaction() as tx:
                    await tx.ack(delivery)
                    if tries == 1:
                        raise ValueError("not this time")  # noqa: TRY301
            except ValueError:
                continue
    assert host.ended == ["abort", "commit"]
    assert tries == 2
    assert host.durables["d"].done == {1}


@pytest.mark.parametrize("target", [1, 4])
async def test_a_seek_while_a_message_is_in_hand_is_not_undone_by_its_transaction(target: int) -> None:
    host, client = await filled(5)
    durable = host.durables
    async with client.subscribe("orders", durable="d", ack="manual") as orders:
        first, second, third = [await anext(orders) for _ in range(3)]
        await second.ack()
        await client.consumers.seek("orders", "d", target)
        async with asyncio.timeout(5):
            while third._entry.loss is None:  # until a page tells  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for stale, code in ((third, "position_moved"), (first, "transaction_conflict")):  # the other was acked before
            with pytest.raises(MtsError) as caught:
                async with client.transaction() as tx:
                    await tx.ack(stale)
            assert caught.value.code == code
            assert durable["d"].position == target - 1
        async with client.transaction() as tx:
            await tx.ack(await anext(orders))
    assert host.ended == ["abort", "abort", "commit"]
    assert durable["d"].position == target


async def test_a_seek_while_the_ack_is_on_its_way_is_seen_too() -> None:
    host, client = await filled(1)
    async with client.subscribe("orders", durable="d", ack="manual") as orders:
        delivery = await anext(orders)

        def sought(act: Callable[[], HttpResponse]) -> HttpResponse:
            assert isinstance(orders._intake.feed, OrderedFeed)
            orders._intake.feed._moved()
            return act()

        host.once("/ack", sought)
        with pytest.raises(MtsError) as caught:
            async with client.transaction() as tx:
                await tx.ack(delivery)
    assert caught.value.code == "position_moved"
    assert host.ended == ["abort"]


@pytest.mark.parametrize("counts", [True, False])
async def test_after_a_seek_during_the_commit_the_reader_goes_on_from_there(counts: bool) -> None:
    host, client = await filled(2)
    async with client.subscribe("orders", durable="d", ack="manual") as orders:
        feed = orders._intake.feed
        assert isinstance(feed, OrderedFeed)

        def sought(act: Callable[[], HttpResponse]) -> HttpResponse:
            answered = act() if counts else _error(409, "transaction_conflict")
            host.durables["d"].move(0)
            feed._moved()
            return answered

        delivery = await anext(orders)
        host.once("/commit", sought)
        with contextlib.nullcontext() if counts else pytest.raises(MtsError, match="transaction_conflict"):
            async with client.transaction() as tx:
                await tx.ack(delivery)
        assert feed._ledger.acked == 0, "what is read next was not acked"
        again = [await anext(orders) for _ in range(2)]
        assert [one.sequence for one in again] == [1, 2]
        await again[1].ack()
    assert host.durables["d"].position == 2


async def test_a_handler_does_not_ack_in_its_transaction_what_another_has_in_hand() -> None:
    host = TransactionHost()
    client = host.client()
    await client.publish_batch("orders", [Item(str(n), headers={"partition": str(n % 2)}) for n in range(2)])
    second_done = asyncio.Event()
    refused: list[str] = []

    async def handle(delivery: AsyncDelivery) -> None:
        if delivery.sequence == 1:
            await second_done.wait()
        try:
            async with client.transaction() as tx:
                await tx.ack(delivery)
        except MtsError as error:
            refused.append(error.code)
            raise
        finally:
            second_done.set()

    with pytest.raises(MtsError, match="message 2"):
        await client.subscribe("orders", durable="d", idle=0).run(handle, concurrency=2)
    assert refused == ["bad_request"]
    assert host.ended == ["abort", "commit"]
    assert host.durables["d"].position == 1


async def test_an_ordered_reader_does_not_go_on_over_a_message_whose_transaction_failed() -> None:
    host, client = await filled()
    host.once("/commit", api_error(409, "transaction_ended"))
    async with client.subscribe("orders", durable="d") as orders:
        delivery = await anext(orders)
        with pytest.raises(MtsError, match="transaction_ended"):
            async with client.transaction() as tx:
                await tx.ack(delivery)
        with pytest.raises(MtsError) as caught:
            await anext(orders)
    assert caught.value.code == "not_handled"
    assert host.durables["d"].position == 0


def test_a_plain_transaction_commits() -> None:
    host = TransactionHost()
    with Client(HOSTS[0], TOKEN) as client:
        client._client = host.client()
        client.publish("orders", b"one")
        with client.subscribe("orders", durable="d", idle=0) as orders:
            for delivery in orders:
                with client.transaction() as tx:
                    tx.publish("invoices", delivery.data())
                    tx.ack(delivery)
    assert host.ended == ["commit"]
    assert host.durables["d"].position == 1
