"""The calls about durables, on a real host and on the one in memory that the SDK's tests use: so that it cannot lie."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from minitoolstream.client import AsyncClient, Item, MtsError
from tests.unit.fake_delivery import DeliveryHost

RED = [{"header": "colour", "equals": "red"}]


class Calls:
    """The durable `d` of a subject with five messages, the second and fourth of them red; `at` are their sequences."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.subject = f"s-{uuid.uuid4().hex[:12]}"
        self.at: list[int] = []

    async def fill(self) -> None:
        items = [Item(str(n), headers={"colour": "red" if n % 2 else "blue"}) for n in range(5)]
        results = await self.client.publish_batch(self.subject, items)
        self.at = [result.unwrap().sequence or 0 for result in results]

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        raw = b"" if body is None else msgspec.json.encode(body)
        response = await self.client._transport.send(
            method,
            f"/v1/subjects/{self.subject}{path}",
            query=query,
            body=raw,
            headers={"content-type": "application/json"},
        )
        return msgspec.json.decode(response.body)

    async def put(self, **body: Any) -> Any:
        return await self.ask("PUT", "/consumers/d", body)

    async def post(self, action: str, **body: Any) -> Any:
        return await self.ask("POST", f"/consumers/d/{action}", body)

    async def refusal(self, action: str, **body: Any) -> str:
        """The code that a POST is refused with."""
        with pytest.raises(MtsError) as caught:
            await self.post(action, **body)
        return caught.value.code

    async def lag(self) -> int:
        return int((await self.ask("GET", "/consumers/d"))["lag"])

    async def position(self) -> int:
        return int((await self.ask("GET", "/consumers/d"))["last_sequence"])

    async def read(self, **query: Any) -> tuple[list[int], Any]:
        page = await self.ask("GET", "/subscribe", durable="d", limit=100, wait=0, **query)
        return [message["sequence"] for message in page["messages"]], page

    async def lease(self, limit: int = 100) -> tuple[str, list[tuple[int, int]]]:
        """What is leased, as sequences and how often each was handed out."""
        leased = await self.post("lease", limit=limit, wait=0)
        messages = [(message["sequence"], message["deliveries"]) for message in leased["messages"]]
        return leased.get("lease_id", ""), messages


@pytest.fixture(params=["memory", "host"])
async def calls(request: pytest.FixtureRequest) -> AsyncIterator[Calls]:
    if request.param == "memory":
        made = Calls(DeliveryHost().client())
        await made.fill()
        yield made
        return
    live = request.getfixturevalue("live")
    async with AsyncClient(live.url, live.token) as client:
        made = Calls(client)
        await made.fill()
        yield made


# -- positions


async def test_a_durable_is_read_from_its_position_and_an_ack_moves_it_forward_only(calls: Calls) -> None:
    await calls.put(start="first")
    assert (await calls.read())[0] == calls.at
    assert (await calls.post("ack", sequence=calls.at[2]))["last_sequence"] == calls.at[2]
    assert (await calls.post("ack", sequence=calls.at[0]))["last_sequence"] == calls.at[2]
    found, page = await calls.read()
    assert (found, page["position"], await calls.lag()) == (calls.at[3:], calls.at[2], 2)
    assert await calls.refusal("ack", sequence=2**40) == "beyond_end"
    assert await calls.position() == calls.at[2]


async def test_a_durable_begins_with_what_its_start_names(calls: Calls) -> None:
    await calls.put(start=calls.at[3])
    assert (await calls.read())[0] == calls.at[3:]


async def test_a_seek_makes_its_target_the_next_to_be_read(calls: Calls) -> None:
    await calls.put(start="first")
    await calls.post("ack", sequence=calls.at[4])
    for target, rest in ((calls.at[1], calls.at[1:]), ("first", calls.at), ("last", calls.at[4:]), ("new", [])):
        await calls.put(seek=target)
        assert (await calls.read())[0] == rest
    with pytest.raises(MtsError) as caught:
        await calls.put(seek=2**40)
    assert caught.value.code == "beyond_end"
    assert "watermark" not in caught.value.message


async def test_a_seek_alone_makes_no_durable(calls: Calls) -> None:
    for _ in range(2):
        with pytest.raises(MtsError) as caught:
            await calls.put(seek="first")
        assert caught.value.code == "unknown_durable"
    await calls.put(seek=calls.at[3], mode="ordered")
    assert (await calls.read())[0] == calls.at[3:]


async def test_what_a_filter_leaves_out_counts_as_read(calls: Calls) -> None:
    await calls.put(start="first", filter=RED)
    found, page = await calls.read()
    assert found == [calls.at[1], calls.at[3]]
    assert page["next_sequence"] > calls.at[4]


async def test_calls_of_the_other_mode_and_of_nobody_are_refused(calls: Calls) -> None:
    for action, body in (("ack", {"sequence": 1}), ("lease", {"limit": 1})):
        assert await calls.refusal(action, **body) == "unknown_durable"
    await calls.put(mode="ordered")
    assert await calls.refusal("lease", limit=1) == "mode_mismatch"
    assert await calls.refusal("nack", lease_id="x", sequences=[1]) == "mode_mismatch"
    with pytest.raises(MtsError) as caught:
        await calls.put(mode="shared")
    assert caught.value.code == "mode_mismatch"
    await calls.ask("DELETE", "/consumers/d")
    await calls.put(mode="shared")
    assert await calls.refusal("ack", sequence=calls.at[0]) == "mode_mismatch"
    assert await calls.refusal("sessions", session_id="one") == "mode_mismatch"
    with pytest.raises(MtsError) as caught:
        await calls.read()
    assert caught.value.code == "mode_mismatch"


# -- leases


async def test_what_is_leased_is_handed_out_once_and_acked_all_or_nothing(calls: Calls) -> None:
    await calls.put(mode="shared")
    one, leased = await calls.lease(3)
    other, rest = await calls.lease()
    assert leased + rest == [(sequence, 1) for sequence in calls.at]
    assert (await calls.lease()) == ("", [])
    assert await calls.refusal("ack", lease_id=one, sequences=[calls.at[0], calls.at[3]]) == "lease_lost"
    assert await calls.lag() == 5
    assert await calls.post("ack", lease_id=one, sequences=calls.at[:3]) == {"acked": 3}
    assert await calls.refusal("ack", lease_id=one, sequences=calls.at[:1]) == "lease_lost"
    assert await calls.refusal("extend", lease_id=one, seconds=9, sequences=calls.at[:1]) == "lease_lost"
    assert await calls.post("extend", lease_id=other, seconds=9, sequences=calls.at[3:])
    assert await calls.lag() == 2


async def test_a_lease_has_only_what_fits_the_filter(calls: Calls) -> None:
    await calls.put(mode="shared", filter=RED)
    assert (await calls.lease())[1] == [(calls.at[1], 1), (calls.at[3], 1)]


async def test_what_is_given_back_is_tried_again_and_then_a_dead_letter(calls: Calls) -> None:
    await calls.put(mode="shared", max_deliver=2)
    first = calls.at[0]
    lease_id, _ = await calls.lease(1)
    assert await calls.post("nack", lease_id=lease_id, sequences=[first]) == {"nacked": 1, "dead_lettered": 0}
    assert await calls.refusal("nack", lease_id=lease_id, sequences=[first]) == "lease_lost"
    lease_id, leased = await calls.lease(1)
    assert leased == [(first, 2)]
    assert await calls.post("nack", lease_id=lease_id, sequences=[first]) == {"nacked": 1, "dead_lettered": 1}
    assert (await calls.lease(1))[1] == [(calls.at[1], 1)]
    assert await calls.lag() == 4
    calls.subject += ".dlq"
    page = await calls.ask("GET", "/subscribe", start="first", limit=9, wait=0)
    assert [message["headers"]["mts-dlq-sequence"] for message in page["messages"]] == [str(first)]


async def test_what_is_given_back_untried_has_all_its_tries(calls: Calls) -> None:
    await calls.put(mode="shared", max_deliver=1)
    lease_id, _ = await calls.lease(1)
    body = {"lease_id": lease_id, "sequences": calls.at[:1], "untried": True}
    assert await calls.post("nack", **body) == {"nacked": 1, "dead_lettered": 0}
    assert (await calls.lease(1))[1] == [(calls.at[0], 1)]


async def test_a_seek_voids_leases_and_begins_anew(calls: Calls) -> None:
    await calls.put(mode="shared")
    lease_id, _ = await calls.lease()
    await calls.put(seek=calls.at[3])
    assert await calls.refusal("ack", lease_id=lease_id, sequences=calls.at[3:]) == "lease_lost"
    assert (await calls.lease())[1] == [(sequence, 1) for sequence in calls.at[3:]]


# -- sessions


async def test_a_session_reads_and_acks_with_its_epoch_and_fence(calls: Calls) -> None:
    await calls.put(start="first")
    session = await calls.post("sessions", session_id="one", ttl=30)
    (share,) = session["partitions"]
    assert (await calls.read(session="one", epoch=session["epoch"]))[0] == calls.at
    after = f"0:{calls.at[1]}:{share['fence']}"
    assert (await calls.read(session="one", epoch=session["epoch"], after=after))[0] == calls.at[2:]
    assert await calls.refusal("ack", sequence=calls.at[0]) == "sessions_active"
    ack = {"partition": 0, "fence": share["fence"], "sequence": calls.at[2]}
    body = {"session_id": "one", "epoch": session["epoch"]}
    assert (await calls.post("ack", **body, partitions=[ack]))["last_sequence"] == calls.at[2]
    wrong = {**ack, "fence": share["fence"] + 1}
    assert await calls.refusal("ack", **body, partitions=[wrong]) == "position_moved"
    assert await calls.refusal("ack", **body, partitions=[{**ack, "partition": 9}]) == "partition_lost"
    assert await calls.refusal("ack", **body, partitions=[{**ack, "sequence": 2**40}]) == "beyond_end"
    beat = await calls.post("sessions/one/heartbeat", epoch=session["epoch"])
    assert (beat["epoch"], beat["partitions"][0]["position"]) == (session["epoch"], calls.at[2])


async def test_a_namesake_fences_the_older_reader_and_one_that_left_is_unknown(calls: Calls) -> None:
    await calls.put(start="first")
    older = await calls.post("sessions", session_id="one", ttl=30)
    newer = await calls.post("sessions", session_id="one", ttl=30)
    assert newer["epoch"] > older["epoch"]
    fence = newer["partitions"][0]["fence"]
    acks = [{"partition": 0, "fence": fence, "sequence": calls.at[0]}]
    assert await calls.refusal("sessions/one/heartbeat", epoch=older["epoch"]) == "session_fenced"
    assert await calls.refusal("ack", session_id="one", epoch=older["epoch"], partitions=acks) == "session_fenced"
    await calls.ask("DELETE", "/consumers/d/sessions/one", epoch=newer["epoch"])
    assert await calls.refusal("sessions/one/heartbeat", epoch=newer["epoch"]) == "unknown_session"
    assert await calls.refusal("ack", session_id="one", epoch=newer["epoch"], partitions=acks) == "unknown_session"
    assert await calls.refusal("sessions/nobody/heartbeat", epoch=1) == "unknown_session"
    assert await calls.position() < calls.at[0], "nothing it acked counts"


async def test_a_seek_fences_the_partitions_of_a_session(calls: Calls) -> None:
    await calls.put(start="first")
    session = await calls.post("sessions", session_id="one", ttl=30)
    (share,) = session["partitions"]
    await calls.put(seek=calls.at[1])
    acks = [{"partition": 0, "fence": share["fence"], "sequence": calls.at[4]}]
    assert await calls.refusal("ack", session_id="one", epoch=session["epoch"], partitions=acks) == "position_moved"
    assert (await calls.read(session="one", epoch=session["epoch"]))[0] == calls.at[1:]
