"""Durables through the real servers: made, read, acked, moved, removed; live subscriptions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.durables import Durable, fill, sequences, subscribe
from tests.live import Live


@pytest.fixture
def durable(live: Live, subject: str) -> Durable:
    return Durable(live, subject)


def test_a_durable_is_made_once_and_says_where_it_stands(live: Live, subject: str, durable: Durable) -> None:
    given = fill(live, subject, "a", "b", "c")
    made = durable.put(important=True)
    assert (made.status, made.json["mode"], made.json["lag"]) == (201, "ordered", 3)
    assert made.json["last_sequence"] < given[0]
    again = durable.put(ack_wait=60)
    assert (again.status, again.json["important"], again.json["ack_wait"]) == (200, True, 60)
    assert durable.now["latest_sequence"] == given[-1]
    assert [one["durable"] for one in live.api("GET", f"/v1/subjects/{subject}/consumers").json["consumers"]] == [
        "billing"
    ]


def test_durables_are_listed_page_by_page(live: Live, subject: str) -> None:
    for name in ("a", "b", "c"):
        Durable(live, subject, name).put()
    first = live.api("GET", f"/v1/subjects/{subject}/consumers?limit=2").json
    assert ([one["durable"] for one in first["consumers"]], first["next"]) == (["a", "b"], "b")
    rest = live.api("GET", f"/v1/subjects/{subject}/consumers?limit=2&after=b").json
    assert ([one["durable"] for one in rest["consumers"]], "next" in rest) == (["c"], False)


def test_reading_moves_nothing_and_an_ack_moves_forward_only(live: Live, subject: str, durable: Durable) -> None:
    first, second, third = fill(live, subject, "a", "b", "c")
    durable.put()
    page = durable.read()
    assert sequences(page) == [first, second, third]
    assert page["position"] < first
    path = f"/v1/subjects/{subject}/messages?durable=billing"
    assert sequences(live.api("GET", path).json) == [first, second, third]
    assert durable.post("ack", sequence=second).json == {"last_sequence": second}
    assert durable.post("ack", sequence=first).json == {"last_sequence": second}
    page = durable.read()
    assert (sequences(page), page["position"]) == ([third], second)
    assert durable.put(last_sequence=third).json["lag"] == 0


def test_an_ack_of_what_was_read_before_a_seek_is_refused(live: Live, subject: str, durable: Durable) -> None:
    first, _, third = fill(live, subject, "a", "b", "c")
    durable.put()
    page = durable.read()
    assert durable.post("ack", sequence=first, fence=page["fence"]).json == {"last_sequence": first}
    durable.put(seek="first")
    refused = durable.post("ack", sequence=third, fence=page["fence"])
    assert (refused.status, refused.code) == (409, "position_moved")
    page = durable.read()
    assert len(page["messages"]) == 3
    live.api("DELETE", durable.path)
    durable.put()
    assert durable.post("ack", sequence=third, fence=page["fence"]).code == "position_moved"
    assert durable.post("ack", sequence=third, fence=durable.read()["fence"]).json == {"last_sequence": third}


def test_an_ack_beyond_the_end_is_refused_and_makes_nothing(live: Live, subject: str, durable: Durable) -> None:
    fill(live, subject, "a")
    assert durable.put(last_sequence=2**40).code == "beyond_end"
    assert live.api("GET", durable.path).code == "unknown_durable"
    durable.put()
    assert durable.post("ack", sequence=2**40).code == "beyond_end"


def test_an_unknown_durable_says_how_to_make_it(live: Live, subject: str, durable: Durable) -> None:
    refused = subscribe(live, subject, durable="billing")
    assert (refused.status, refused.code) == (404, "unknown_durable")
    assert "PUT" in refused.json["error"]["message"]
    assert durable.post("ack", sequence=1).status == 404


def test_a_durable_begins_where_it_is_told_to(live: Live, subject: str) -> None:
    given = fill(live, subject, "a", "b")
    starts: dict[str, Any] = {
        "new": "new",
        "last": "last",
        "at": given[1],
        "since": {"time": 0},
        "iso": {"time": "2020-01-01"},
    }
    read = {}
    for name, start in starts.items():
        one = Durable(live, subject, name)
        assert one.put(start=start).status == 201
        read[name] = sequences(one.read())
    assert read == {"new": [], "last": given[1:], "at": given[1:], "since": given, "iso": given}


def test_a_seek_goes_both_ways(live: Live, subject: str, durable: Durable) -> None:
    first, second = fill(live, subject, "a", "b")
    durable.put(last_sequence=second)
    assert durable.put(seek="first").json["lag"] == 2
    assert sequences(durable.read()) == [first, second]
    assert durable.put(seek="new").json["lag"] == 0
    assert durable.put(seek=second).json["lag"] == 1
    assert durable.put(seek={"time": time.time() + 100}).json["lag"] == 0
    assert durable.put(seek=1, last_sequence=1).status == 400


def test_a_waiting_reader_is_woken_by_the_commit(live: Live, subject: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(subscribe, live, subject, start="first", wait=20) for _ in range(5)]
        (sequence,) = fill(live, subject, "x")
        assert [sequences(one.result().json) for one in waiting] == [[sequence]] * 5


def test_a_waiting_durable_is_woken_by_the_commit_and_by_a_seek(live: Live, subject: str, durable: Durable) -> None:
    durable.put()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(durable.read, wait=20)
        (sequence,) = fill(live, subject, "x")
        assert sequences(waiting.result()) == [sequence]
        durable.post("ack", sequence=sequence)
        waiting = pool.submit(durable.read, wait=20)
        durable.put(seek="first")
        assert sequences(waiting.result()) == [sequence]


def test_a_filter_is_asked_for_or_kept_with_the_durable(live: Live, subject: str, durable: Durable) -> None:
    red = fill(live, subject, "a", colour="red")
    fill(live, subject, "b", colour="blue")
    red += fill(live, subject, "c", colour="red, dark")
    assert sequences(subscribe(live, subject, start="first", filter="colour^=red").json) == red
    path = f"/v1/subjects/{subject}/messages?start=first&filter=colour=red%5C,%20dark"
    assert sequences(live.api("GET", path).json) == red[1:]
    made = durable.put(filter=[{"header": "colour", "prefix": "red"}])
    assert made.json["filter"] == [{"header": "colour", "prefix": "red"}]
    assert sequences(durable.read()) == red
    assert subscribe(live, subject, durable="billing", filter="a=b").status == 400


def test_a_removed_durable_is_gone(live: Live, subject: str, durable: Durable) -> None:
    durable.put()
    assert live.api("DELETE", durable.path).json == {"deleted": True}
    assert live.api("DELETE", durable.path).code == "unknown_durable"
    assert durable.put().status == 201


def test_the_mode_stays(durable: Durable) -> None:
    durable.put(mode="shared")
    assert durable.put(mode="ordered").code == "mode_mismatch"
    assert durable.post("ack", sequence=0).code == "mode_mismatch"
    assert durable.read()["error"]["code"] == "mode_mismatch"
    Durable(durable.live, durable.subject, "plain").put()
    assert Durable(durable.live, durable.subject, "plain").post("lease").code == "mode_mismatch"


# -- sessions


def test_a_session_reads_and_acks_its_partitions(live: Live, subject: str, durable: Durable) -> None:
    first, second = fill(live, subject, "a", "b")
    durable.put()
    joined = durable.post("sessions", session_id="w1", ttl=30)
    assert joined.status == 201
    epoch, (share,) = joined.json["epoch"], joined.json["partitions"]
    query = {"session": "w1", "epoch": epoch}
    page = durable.read(**query, limit=1)
    assert (sequences(page), page["partitions"]) == ([first], [share])
    after = f"{share['partition']}:{first}:{share['fence']}"
    assert sequences(durable.read(**query, after=after)) == [second]
    assert durable.post("ack", sequence=first).code == "sessions_active"
    acks = [{"partition": share["partition"], "fence": share["fence"], "sequence": second}]
    done = durable.post("ack", session_id="w1", epoch=epoch, partitions=acks)
    assert done.json == {"last_sequence": second}
    assert durable.post("sessions/w1/heartbeat", epoch=epoch).json["partitions"][0]["position"] == second
    assert live.api("DELETE", f"{durable.path}/sessions/w1?epoch={epoch}").json == {"deleted": True}
    assert durable.post("ack", sequence=second).status == 200


def test_a_second_reader_with_the_same_session_fences_the_first(live: Live, subject: str, durable: Durable) -> None:
    (sequence,) = fill(live, subject, "a")
    durable.put()
    old = durable.post("sessions", session_id="w1").json
    new = durable.post("sessions", session_id="w1").json
    assert durable.post("sessions/w1/heartbeat", epoch=old["epoch"]).code == "session_fenced"
    share = old["partitions"][0]
    acks = [{"partition": 0, "fence": share["fence"], "sequence": sequence}]
    assert durable.post("ack", session_id="w1", epoch=old["epoch"], partitions=acks).code == "session_fenced"
    assert durable.now["lag"] == 1
    assert durable.read(session="w1", epoch=new["epoch"])["messages"]
    assert durable.post("sessions/other/heartbeat", epoch=1).code == "unknown_session"


@pytest.mark.parametrize(
    "query",
    [
        "start=soon",
        "wait=26",
        "limit=0",
        "filter=kind",
        "session=a",
        "durable=a&session=b",
        "durable=a&epoch=1",
        "durable=a&partition=1",
        "durable=a%2Fb",
        "durable=a&session=b&epoch=1&start=5",
        "durable=a&session=b&epoch=1&after=x",
        "view=rows",
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(live: Live, subject: str, query: str) -> None:
    refused = live.api("GET", f"/v1/subjects/{subject}/subscribe?{query}")
    assert (refused.status, refused.code) == (400, "bad_request")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("ack", {}),
        ("ack", {"sequence": 1, "lease_id": "a", "sequences": [1]}),
        ("ack", {"session_id": "a", "epoch": 1}),
        ("ack", {"lease_id": "a", "sequences": []}),
        ("ack", {"sequence": -1}),
        ("lease", {"limit": 0}),
        ("lease", {"limit": 1001}),
        ("lease", {"wait": 26}),
        ("lease", {"seconds": 0}),
        ("nack", {"lease_id": "a"}),
        ("nack", {"lease_id": "a", "sequences": ["x"]}),
        ("extend", {"lease_id": "a", "seconds": 43_201}),
        ("sessions", {"session_id": "a/b"}),
        ("sessions", {"session_id": "a", "ttl": 4}),
        ("sessions/a/heartbeat", {}),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(durable: Durable, action: str, body: dict[str, Any]) -> None:
    refused = durable.post(action, **body)
    assert (refused.status, refused.code) == (400, "bad_request"), refused.body


@pytest.mark.parametrize(
    "body",
    [
        {"mode": "both"},
        {"start": "soon"},
        {"seek": {"time": "soon"}},
        {"filter": [{"header": "a"}]},
        {"filter": [{"header": "a", "equals": "b", "prefix": "c"}]},
        {"ack_wait": 0},
        {"dead_letter": "a/b"},
        {"unknown": 1},
    ],
)
def test_settings_that_make_no_sense_are_refused_and_make_nothing(durable: Durable, body: dict[str, Any]) -> None:
    refused = durable.put(**body)
    assert (refused.status, refused.code) == (400, "bad_request"), refused.body
    assert durable.live.api("GET", durable.path).status == 404
