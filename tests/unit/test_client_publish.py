"""Publishing from memory: inline, by ticket, in batches."""

from __future__ import annotations

import pytest

from minitoolstream.client import Item, MtsError, State
from minitoolstream.client._batch import MAX_CALL_BYTES, split, to_frame
from minitoolstream.domain.limits import MAX_MESSAGES_PER_PACK, MAX_PACK_METADATA_BYTES
from tests.unit.fake_host import FakeHost, api_error


async def test_a_small_payload_goes_inline_with_its_headers() -> None:
    host = FakeHost()
    receipt = await host.client().publish("orders", "text", headers={"kind": "order"})
    assert receipt.state is State.COMMITTED
    assert host.messages[0].data == b"text"
    assert host.messages[0].meta == {"content_type": "text/plain; charset=utf-8", "headers": {"kind": "order"}}


@pytest.mark.parametrize(
    "headers",
    [{"Kind": "order"}, {"kind": "größe"}, {"kind": " padded "}, {"kind": ""}, {"two words": "x"}],
    ids=["case", "unicode", "spaces", "empty", "name"],
)
async def test_headers_that_http_would_change_travel_as_json(headers: dict[str, str]) -> None:
    host = FakeHost()
    await host.client().publish("orders", b"\x00\xff", headers=headers)
    assert host.messages[0].data == b"\x00\xff"
    assert host.messages[0].meta["headers"] == headers


async def test_a_payload_above_the_inline_limit_goes_by_ticket() -> None:
    host = FakeHost(part_size=1 << 30)
    data = b"x" * (4 * 1024 * 1024 + 1)
    receipt = await host.client().publish("orders", data)
    assert receipt.sequence == 1
    assert host.messages[0].data == data
    assert [line.split("/")[0] for line in host.log] == ["POST host-a", "PUT store", "GET host-a"]


async def test_a_host_with_a_lower_limit_gets_the_payload_by_ticket() -> None:
    host = FakeHost(part_size=1 << 30, inline_limit=3)
    await host.client().publish("orders", b"hello")
    assert host.messages[0].data == b"hello"
    assert host.asked("PUT store")


async def test_key_and_producer_together_are_refused() -> None:
    host = FakeHost()
    with pytest.raises(MtsError, match="not both"):
        await host.client().publish("orders", b"", producer_id="p", seqno=1, idempotency_key="k")
    assert host.log == []


async def test_a_key_of_the_callers_own_is_used() -> None:
    host = FakeHost()
    client = host.client()
    first = await client.publish("orders", b"x", idempotency_key="k1")
    again = await client.publish("orders", b"x", idempotency_key="k1")
    assert (first.sequence, again.sequence, again.duplicate) == (1, 1, True)


async def test_a_key_is_not_silently_dropped_for_a_payload_that_needs_a_ticket() -> None:
    host = FakeHost(inline_limit=3)
    with pytest.raises(MtsError, match="producer_id and seqno"):
        await host.client().publish("orders", b"hello", idempotency_key="k1")
    assert host.messages == []


async def test_a_named_producers_publish_carries_number_and_epoch_and_no_key() -> None:
    host = FakeHost()
    await host.client().publish("orders", b"x", producer_id="till", seqno=2**60, epoch=3)
    sent = host.sent_headers[0]
    assert (sent["x-mts-producer-id"], sent["x-mts-seqno"], sent["x-mts-epoch"]) == ("till", str(2**60), "3")
    assert "idempotency-key" not in sent


async def test_a_payload_that_is_neither_bytes_nor_text_is_refused() -> None:
    with pytest.raises(MtsError, match="bytes or str, not int"):
        await FakeHost().client().publish("orders", 5)  # type: ignore[arg-type]


async def test_start_producer_gives_numbers_even_where_json_has_strings() -> None:
    session = await FakeHost().client().start_producer("orders", "till")
    assert (session.epoch, session.last_seqno) == (3, 41)


# -- batches


async def test_items_of_all_forms_get_results_in_order() -> None:
    host = FakeHost()
    items = [b"a", "b", Item(b"c", headers={"n": "3"}), {"data": b"d", "content_type": "image/png"}]
    results = await host.client().publish_batch("orders", items)  # type: ignore[arg-type]
    assert [result.unwrap().sequence for result in results] == [1, 2, 3, 4]
    assert [message.data for message in host.messages] == [b"a", b"b", b"c", b"d"]
    assert host.messages[2].meta["headers"] == {"n": "3"}
    assert host.messages[3].meta["content_type"] == "image/png"


async def test_one_bad_item_fails_alone() -> None:
    host = FakeHost()
    results = await host.client().publish_batch("orders", [b"a", Item(b"b", headers={"bad": "1"}), b"c"])
    assert [result.ok for result in results] == [True, False, True]
    assert results[1].error is not None
    assert results[1].error.details == {"field": "headers"}
    with pytest.raises(MtsError, match="bad header"):
        results[1].unwrap()


@pytest.mark.parametrize(
    "bad",
    [Item(b"", headers={"": "x"}), Item(b"", content_type="nonsense"), Item(b"", producer_id="p"), Item(5)],  # type: ignore[arg-type]
    ids=["header", "content type", "no seqno", "payload"],
)
async def test_an_item_that_no_host_would_take_is_not_sent_and_fails_alone(bad: Item) -> None:
    host = FakeHost()
    results = await host.client().publish_batch("orders", [b"a", bad, b"c"])
    assert [result.ok for result in results] == [True, False, True]
    assert [message.data for message in host.messages] == [b"a", b"c"]


async def test_an_unknown_field_of_a_dict_is_named() -> None:
    with pytest.raises(MtsError, match="colour"):
        await FakeHost().client().publish_batch("orders", [{"data": b"", "colour": "red"}])


@pytest.mark.parametrize("arguments", [{"producer_id": "p"}, {"first_seqno": 1}, {"epoch": 1}])
async def test_a_producer_needs_a_seqno_and_a_seqno_a_producer(arguments: dict[str, object]) -> None:
    with pytest.raises(MtsError, match="need"):
        await FakeHost().client().publish_batch("orders", [b"a"], **arguments)  # type: ignore[arg-type]


async def test_no_items_are_no_call() -> None:
    host = FakeHost()
    assert await host.client().publish_batch("orders", []) == []
    assert host.log == []


def test_calls_are_cut_by_number_size_and_metadata() -> None:
    small = [to_frame(b"")] * (MAX_MESSAGES_PER_PACK + 1)
    assert [len(call) for call in split(small)] == [MAX_MESSAGES_PER_PACK, 1]
    large = [to_frame(b"x" * (MAX_CALL_BYTES // 3))] * 4
    assert [len(call) for call in split(large)] == [2, 2]
    described = [to_frame(Item(b"", headers={"n": str(n), "text": "x" * 10_000})) for n in range(60)]
    calls = list(split(described))
    assert len(calls) > 1
    assert all(sum(len(frame.meta) for frame in call[1:]) <= MAX_PACK_METADATA_BYTES for call in calls)
    assert [frame for call in calls for frame in call] == described


def test_headers_that_all_messages_share_count_once() -> None:
    alike = [to_frame(Item(b"", headers={"text": "x" * 1_000}))] * 1_000
    assert [len(call) for call in split(alike)] == [1_000]


async def test_a_call_that_is_too_large_for_the_host_is_halved() -> None:
    host = FakeHost()
    host.once("/batch", api_error(413, "too_large"))
    results = await host.client().publish_batch("orders", [b"a", b"b", b"c"])
    assert [result.unwrap().sequence for result in results] == [1, 2, 3]
    assert len(host.asked("/batch")) == 3


async def test_what_a_halved_call_stored_is_reported_when_its_other_half_fails() -> None:
    host = FakeHost()
    host.once("/batch", api_error(413, "too_large"), lambda act: act(), api_error(503, "unavailable"))
    results = await host.client(seconds=0).publish_batch("orders", [b"a", b"b", b"c", b"d"])
    assert [result.error.code if result.error else "stored" for result in results] == [
        "stored",
        "stored",
        "unavailable",
        "unavailable",
    ]
    assert [message.data for message in host.messages] == [b"a", b"b"]


async def test_an_item_too_large_for_any_call_goes_by_ticket_and_keeps_its_place() -> None:
    host = FakeHost(part_size=1 << 30)
    large = b"x" * (MAX_CALL_BYTES + 1)
    results = await host.client().publish_batch("orders", [b"a", large, b"b"])
    assert [result.unwrap().sequence for result in results] == [1, 2, 3]
    assert host.messages[1].data == large


async def test_what_was_stored_before_a_failing_call_is_still_reported() -> None:
    host = FakeHost()
    item = b"x" * (MAX_CALL_BYTES // 2 + 1)
    host.once("nothing else fails")
    client = host.client(seconds=0)
    original = host._handle

    def fail_second(method: str, url: str, headers: dict[str, str], body: bytes) -> object:
        if len(host.asked("/batch")) == 1:
            host.once("/batch", api_error(503, "unavailable"))
        return original(method, url, headers, body)

    host._handle = fail_second  # type: ignore[method-assign,assignment]
    results = await client.publish_batch("orders", [item, item, item])
    assert [result.error.code if result.error else "stored" for result in results] == [
        "stored",
        "unavailable",
        "not_sent",
    ]
