"""Shared durables through the real servers: leases, what is given back, work that many do, dead letters."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.durables import Durable, fill, sequences
from tests.live import Live


@pytest.fixture
def durable(live: Live, subject: str) -> Durable:
    return Durable(live, subject)


def test_leased_messages_are_acked_given_back_and_extended(live: Live, subject: str, durable: Durable) -> None:
    first, second, third = fill(live, subject, "a", "b", "c")
    durable.put(mode="shared")
    lease = durable.post("lease", limit=2, inline=True).json
    assert [(m["sequence"], m["deliveries"], m["data"]) for m in lease["messages"]] == [
        (first, 1, "YQ=="),
        (second, 1, "Yg=="),
    ]
    assert time.time() < lease["expires_at"] < time.time() + 60
    other = durable.post("lease", limit=5).json
    assert sequences(other) == [third]
    assert durable.post("lease").json == {"messages": []}
    assert durable.now["outstanding"] == 3
    longer = durable.post("extend", lease_id=lease["lease_id"], seconds=600).json["expires_at"]
    assert longer > lease["expires_at"] + 100
    assert durable.post("ack", lease_id=lease["lease_id"], sequences=[first]).json == {"acked": 1}
    given = durable.post("nack", lease_id=lease["lease_id"], sequences=[second])
    assert given.json == {"nacked": 1, "dead_lettered": 0}
    again = durable.post("lease").json
    assert (sequences(again), again["messages"][0]["deliveries"]) == ([second], 2)


def test_what_is_not_leased_cannot_be_acked(live: Live, subject: str, durable: Durable) -> None:
    first, second = fill(live, subject, "a", "b")
    durable.put(mode="shared")
    mine, other = durable.post("lease").json, durable.post("lease").json
    assert durable.post("ack", lease_id=mine["lease_id"], sequences=[first, second]).code == "lease_lost"
    assert durable.post("ack", lease_id=other["lease_id"], sequences=[first]).code == "lease_lost"
    assert durable.post("ack", lease_id="nobody", sequences=[first]).code == "lease_lost"
    assert durable.now["outstanding"] == 2


def test_a_waiting_lease_is_woken_by_a_commit_and_by_what_is_given_back(
    live: Live, subject: str, durable: Durable
) -> None:
    durable.put(mode="shared")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(durable.post, "lease", wait=20)
        (sequence,) = fill(live, subject, "a")
        lease = waiting.result().json
        assert sequences(lease) == [sequence]
        waiting = pool.submit(durable.post, "lease", wait=20)
        durable.post("nack", lease_id=lease["lease_id"], sequences=[sequence])
        assert waiting.result().json["messages"][0]["deliveries"] == 2


def test_a_lease_that_ended_goes_to_one_who_waits(live: Live, subject: str, durable: Durable) -> None:
    (sequence,) = fill(live, subject, "a")
    durable.put(mode="shared")
    durable.post("lease", seconds=1)
    waited = durable.post("lease", wait=20).json
    assert (sequences(waited), waited["messages"][0]["deliveries"]) == ([sequence], 2)


def test_many_workers_share_the_work_without_doing_it_twice(live: Live, subject: str, durable: Durable) -> None:
    durable.put(mode="shared")
    seen: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        while True:
            lease = durable.post("lease", limit=3, wait=2).json
            if not lease["messages"]:
                return
            with lock:
                seen.extend(sequences(lease))
            durable.post("ack", lease_id=lease["lease_id"], sequences=sequences(lease))

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work) for _ in range(8)]
        given = [sequence for part in range(4) for sequence in fill(live, subject, *map(str, range(10)))]
        for worker in workers:
            worker.result()
    assert sorted(seen) == given
    assert durable.now["lag"] == 0


# -- dead letters


def test_a_message_whose_tries_are_used_up_is_a_dead_letter(live: Live, subject: str, durable: Durable) -> None:
    (sequence,) = fill(live, subject, "bad", kind="order")
    durable.put(mode="shared", max_deliver=1)
    lease = durable.post("lease").json
    given = durable.post("nack", lease_id=lease["lease_id"], sequences=[sequence]).json
    assert given["dead_lettered"] == 1
    path = f"/v1/subjects/{subject}/dead-letters"
    (dead,) = live.api("GET", f"{path}?inline=true").json["messages"]
    assert dead["data"] == "YmFk"
    assert dead["headers"]["mts-dlq-sequence"] == str(sequence)
    assert (dead["headers"]["mts-dlq-reason"], dead["headers"]["kind"]) == ("nacked", "order")
    assert live.api("POST", f"{path}/replay", {}).json == {"replayed": 1, "more": False}
    assert live.api("GET", path).json["messages"] == []
    (again,) = durable.post("lease").json["messages"]
    assert again["headers"] == {"kind": "order"}
    assert live.payload(again) == b"bad"


def test_dead_letters_can_be_removed(live: Live, subject: str, durable: Durable) -> None:
    (sequence,) = fill(live, subject, "bad")
    durable.put(mode="shared", max_deliver=1)
    lease = durable.post("lease").json
    durable.post("nack", lease_id=lease["lease_id"], sequences=[sequence])
    path = f"/v1/subjects/{subject}/dead-letters"
    assert live.api("DELETE", path).json == {"purged": 1, "more": False}
    assert live.api("GET", path).json["messages"] == []


def test_dead_letters_are_found_where_their_durable_lets_them_go(live: Live, subject: str) -> None:
    given = fill(live, subject, "bad", "worse")
    common, queue = f"{subject}-common.dlq", Durable(live, subject, "workers")
    queue.put(mode="shared", max_deliver=1, dead_letter=common)
    lease = queue.post("lease", limit=2).json
    assert queue.post("nack", lease_id=lease["lease_id"], sequences=given).json["dead_lettered"] == 2
    path = f"/v1/subjects/{subject}/dead-letters"
    first, second = live.api("GET", f"{path}?inline=true").json["messages"]
    assert (first["subject"], first["headers"]["mts-dlq-subject"]) == (common, subject)
    assert live.api("GET", f"{path}?start=last").json["messages"][0]["sequence"] == second["sequence"]
    assert len(live.api("GET", f"{path}?start=time:0").json["messages"]) == 2
    assert live.api("POST", f"{path}/replay", {"sequences": [first["sequence"]]}).json["replayed"] == 1
    assert live.api("DELETE", path).json == {"purged": 1, "more": False}
    assert live.api("GET", path).json["messages"] == []


# -- bad input
