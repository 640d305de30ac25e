"""Corners of delivery that are easily missed: each was looked for, some were found broken."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.durables import Durable, fill, sequences, subscribe
from tests.integration.test_event_stream import stream
from tests.live import Live, eventually


def fill_partitions(live: Live, subject: str, rounds: int) -> dict[int, list[int]]:
    """Sequences by partition, of a subject with two."""
    live.api("PUT", f"/v1/subjects/{subject}", {"partitions": 2})
    for _ in range(rounds):
        fill(live, subject, "x")
    found: dict[int, list[int]] = {0: [], 1: []}
    for message in live.messages(subject):
        found[message["partition"]].append(message["sequence"])
    return found


@pytest.fixture
def half_read(live: Live, subject: str) -> tuple[Durable, dict[int, list[int]]]:
    """A durable whose second partition a session has read to its end, while nobody read the first."""
    lanes = fill_partitions(live, subject, 12)
    durable = Durable(live, subject)
    durable.put()
    session = durable.post("sessions", session_id="w").json
    fences = {share["partition"]: share["fence"] for share in session["partitions"]}
    ack = {"partition": 1, "fence": fences[1], "sequence": lanes[1][-1]}
    assert durable.post("ack", session_id="w", epoch=session["epoch"], partitions=[ack]).status == 200
    live.api("DELETE", f"{durable.path}/sessions/w?epoch={session['epoch']}")
    return durable, lanes


def test_pages_pass_over_partitions_that_are_ahead(half_read: tuple[Durable, dict[int, list[int]]]) -> None:
    durable, lanes = half_read
    found: list[int] = []
    start: Any = None
    while len(found) < len(lanes[0]):
        page = durable.read(limit=2, **({} if start is None else {"start": start}))
        found, start = found + sequences(page), page["next_sequence"]
    assert found == lanes[0]


def test_a_stream_passes_over_partitions_that_are_ahead(
    live: Live, half_read: tuple[Durable, dict[int, list[int]]]
) -> None:
    durable, lanes = half_read
    with stream(live, durable.subject, "durable=billing&limit=2") as events:
        assert [event["sequence"] for event in events.events(len(lanes[0]))] == lanes[0]


def test_a_lease_that_gives_up_on_one_message_still_gives_another(live: Live, subject: str, durable: Durable) -> None:
    """Without waiting: nothing in the answer means that there is nothing."""
    first, second = fill(live, subject, "a", "b")
    durable.put(mode="shared", max_deliver=2)
    both = durable.post("lease", limit=2).json["lease_id"]
    durable.post("nack", lease_id=both, sequences=[first])
    last_try = durable.post("lease", seconds=1).json
    assert sequences(last_try) == [first]
    durable.post("nack", lease_id=both, sequences=[second], delay=1.5)
    eventually(lambda: time.time() > last_try["expires_at"] + 1)

    assert sequences(durable.post("lease", limit=1).json) == [second]
    (dead,) = live.api("GET", f"/v1/subjects/{subject}/dead-letters").json["messages"]
    assert dead["headers"]["mts-dlq-sequence"] == str(first)


def test_a_filter_that_finds_nothing_for_long_still_finds_the_end(live: Live, subject: str, durable: Durable) -> None:
    for _ in range(2):
        fill(live, subject, *["x"] * 3000, colour="blue")
    (wanted,) = fill(live, subject, "y", colour="red")
    durable.put(mode="shared", filter=[{"header": "colour", "equals": "red"}])
    assert sequences(durable.post("lease").json) == [wanted]
    plain = Durable(live, subject, "plain")
    plain.put(filter=[{"header": "colour", "equals": "red"}])
    assert sequences(plain.read(wait=5)) == [wanted]
    assert sequences(subscribe(live, subject, start="first", filter="colour=red", wait=5).json) == [wanted]


def test_what_a_filter_passes_over_counts_as_read(live: Live, subject: str, durable: Durable) -> None:
    fill(live, subject, "a", "b", colour="blue")
    durable.put(filter=[{"header": "colour", "equals": "red"}])
    page = durable.read()
    assert page["messages"] == []
    assert durable.post("ack", sequence=page["next_sequence"] - 1).status == 200
    assert durable.now["lag"] == 0


@pytest.fixture
def durable(live: Live, subject: str) -> Durable:
    return Durable(live, subject)


def test_readers_of_a_deleted_subject_learn_of_it_and_those_of_the_new_one_see_only_it(
    live: Live, subject: str, durable: Durable
) -> None:
    old = fill(live, subject, "a", "b")
    durable.put(mode="shared")
    Durable(live, subject, "plain").put()
    lease = durable.post("lease", limit=2).json["lease_id"]
    with stream(live, subject) as events:
        assert [event["sequence"] for event in events.events(2)] == old
        live.api("DELETE", f"/v1/subjects/{subject}")
        assert durable.post("ack", lease_id=lease, sequences=old).code == "unknown_durable"
        assert subscribe(live, subject, durable="plain").code == "unknown_durable"
        (new,) = fill(live, subject, "c")
        assert [event["sequence"] for event in events.events(1)] == [new]
    durable.put(mode="shared")
    assert durable.post("ack", lease_id=lease, sequences=old).code == "lease_lost"
    assert sequences(durable.post("lease", limit=5).json) == [new]


def test_a_durable_made_again_knows_nothing_of_the_old_one(live: Live, subject: str, durable: Durable) -> None:
    given = fill(live, subject, "a", "b")
    durable.put(mode="shared")
    lease = durable.post("lease", limit=2).json["lease_id"]
    live.api("DELETE", durable.path)
    durable.put(mode="ordered")
    assert durable.post("ack", lease_id=lease, sequences=given).code == "mode_mismatch"
    joined = durable.post("sessions", session_id="w").json
    live.api("DELETE", durable.path)
    durable.put(mode="ordered")
    assert durable.post("sessions/w/heartbeat", epoch=joined["epoch"]).code == "unknown_session"
    again = durable.post("sessions", session_id="w").json
    assert again["epoch"] > joined["epoch"]
    assert durable.now["lag"] == 2
