"""Calls of readers that must not work: each is refused with a clear message, and nothing is changed by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from tests.durables import Durable, fill
from tests.live import Answer, Live

BEYOND, ABOVE_JSON, TOO_LARGE = 2**40, str(2**53 + 1), str(2**63)
LONG = 43_200

QUEUE = "consumers/queue"
PLAIN = "consumers/plain"
OUT = "consumers/out"
ANOTHER = {"lease_id": "x", "sequences": [1]}

# The call, the code, and bodies: `$mine` and `$other` are leases, `$0` to `$3` sequences, `$good` an ack that would do.
TABLE: list[tuple[str, str, list[Any]]] = [
    # -- leases: the first message is `$mine`, the second `$other`'s, the rest nobody's
    (f"POST {QUEUE}/ack", "lease_lost", [
        {"lease_id": "$mine", "sequences": ["$3"]},
        {"lease_id": "$mine", "sequences": ["$1"]},
        {"lease_id": "$mine", "sequences": ["$0", "$1"]},
        {"lease_id": "$mine", "sequences": ["$0", BEYOND]},
        {"lease_id": "$mine", "sequences": [ABOVE_JSON]},
        {"lease_id": "$mine", "sequences": [0]},
        {"lease_id": "", "sequences": ["$0"]},
        ANOTHER,
    ]),
    (f"POST {QUEUE}/ack", "bad_request", [
        None, [], {},
        {"lease_id": "$mine"},
        {"lease_id": "$mine", "sequences": []},
        {"lease_id": "$mine", "sequences": [-1]},
        {"lease_id": "$mine", "sequences": [1.5]},
        {"lease_id": "$mine", "sequences": [None]},
        {"lease_id": "$mine", "sequences": [TOO_LARGE]},
        {"lease_id": "$mine", "sequences": ["$0"] * 1001},
        {"lease_id": "$mine", "sequences": "all"},
        {"lease_id": "$mine", "sequences": ["$0"], "sequence": "$0"},
        {"lease_id": "$mine", "sequences": ["$0"], "force": True},
        {"lease_id": 1, "sequences": ["$0"]},
    ]),
    (f"POST {QUEUE}/nack", "lease_lost", [{"lease_id": "$mine", "sequences": ["$0", "$1"]}, ANOTHER]),
    (f"POST {QUEUE}/nack", "bad_request", [
        {"lease_id": "$mine"},
        {"lease_id": "$mine", "sequences": []},
        {"lease_id": "$mine", "sequences": ["$0"], "delay": -1},
        {"lease_id": "$mine", "sequences": ["$0"], "delay": LONG + 1},
    ]),
    (f"POST {QUEUE}/extend", "lease_lost", [
        {"lease_id": "x", "seconds": 9},
        {"lease_id": "$other", "seconds": 9, "sequences": ["$0"]},
    ]),
    (f"POST {QUEUE}/extend", "bad_request", [
        {"lease_id": "$mine"},
        {"lease_id": "$mine", "seconds": 0},
        {"lease_id": "$mine", "seconds": "9"},
        {"lease_id": "$mine", "seconds": LONG + 1},
    ]),
    (f"POST {QUEUE}/lease", "bad_request", [
        [], {"limit": 0}, {"limit": -1}, {"limit": 1001}, {"limit": "1"}, {"limit": True}, {"limit": 2**70},
        {"seconds": 0}, {"seconds": LONG + 1}, {"wait": 26}, {"wait": -1}, {"inline": "yes"}, {"all": True},
    ]),
    # -- positions
    (f"POST {PLAIN}/ack", "beyond_end", [{"sequence": BEYOND}, {"sequence": ABOVE_JSON}]),
    (f"POST {PLAIN}/ack", "bad_request", [
        None, {"sequence": TOO_LARGE}, {"sequence": 2**63}, {"sequence": -1}, {"sequence": "one"}, {"sequence": "²"},
        {"sequence": True}, {"sequence": None}, {"sequence": 1.5}, {"sequence": [1]},
    ]),
    (f"PUT {PLAIN}", "beyond_end", [{"last_sequence": BEYOND, "ack_wait": 5}, {"seek": BEYOND, "ack_wait": 5}]),
    (f"PUT {PLAIN}", "bad_request", [
        {"seek": 1, "last_sequence": 1}, {"seek": "middle"}, {"seek": "²"}, {"seek": -1}, {"seek": {}},
        {"seek": {"time": "yesterday"}}, {"seek": {"time": -1}}, {"seek": {"time": 1, "zone": "UTC"}},
        {"seek": {"time": "0001-01-01T00:00:00+14:00"}}, {"seek": {"time": 1e300}}, {"last_sequence": -1},
    ]),
    (f"POST {OUT}/ack", "sessions_active", [{"sequence": "$0"}]),
    (f"PUT {OUT}", "sessions_active", [{"last_sequence": "$0", "ack_wait": 5}]),
    # -- one mode taken for the other
    (f"POST {PLAIN}/lease", "mode_mismatch", [{}]),
    (f"POST {PLAIN}/ack", "mode_mismatch", [ANOTHER]),
    (f"POST {PLAIN}/nack", "mode_mismatch", [ANOTHER]),
    (f"POST {PLAIN}/extend", "mode_mismatch", [{"lease_id": "x", "seconds": 9}]),
    (f"POST {QUEUE}/ack", "mode_mismatch", [
        {"sequence": "$0"},
        {"session_id": "w", "epoch": 1, "partitions": ["$good"]},
    ]),
    (f"POST {QUEUE}/sessions", "mode_mismatch", [{"session_id": "w"}]),
    (f"PUT {QUEUE}", "mode_mismatch", [{"mode": "ordered", "ack_wait": 5}, {"last_sequence": "$0", "ack_wait": 5}]),
    ("GET subscribe?durable=queue", "mode_mismatch", [None]),
    ("GET messages?durable=queue", "mode_mismatch", [None]),
    # -- sessions: `$epoch` is the live one, `$old` that of a namesake before it
    (f"POST {OUT}/sessions/w/heartbeat", "session_fenced", [{"epoch": "$old"}]),
    (f"POST {OUT}/ack", "session_fenced", [{"session_id": "w", "epoch": "$old", "partitions": ["$good"]}]),
    ("GET subscribe?durable=out&session=w&epoch=1", "session_fenced", [None]),
    (f"DELETE {OUT}/sessions/w?epoch=1", "session_fenced", [None]),
    (f"POST {OUT}/sessions/w/heartbeat", "unknown_session", [{"epoch": 2**62}]),
    (f"POST {OUT}/sessions/x/heartbeat", "unknown_session", [{"epoch": "$epoch"}]),
    ("GET subscribe?durable=out&session=x&epoch=1", "unknown_session", [None]),
    (f"POST {OUT}/ack", "position_moved", [
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 0, "fence": 1, "sequence": "$0"}]},
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 0, "fence": 2**62, "sequence": "$0"}]},
    ]),
    (f"POST {OUT}/ack", "partition_lost", [
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 9, "fence": 1, "sequence": "$0"}]},
        {"session_id": "w", "epoch": "$epoch", "partitions": ["$good", {"partition": 9, "fence": 1, "sequence": 1}]},
    ]),
    (f"POST {OUT}/ack", "beyond_end", [{"session_id": "w", "epoch": "$epoch", "partitions": ["$good", "$beyond"]}]),
    (f"POST {OUT}/ack", "bad_request", [
        {"session_id": "w", "epoch": "$epoch"},
        {"session_id": "w", "epoch": "$epoch", "partitions": []},
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 0}]},
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": -1, "fence": 1, "sequence": 1}]},
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 2**64, "fence": 1, "sequence": 1}]},
        {"session_id": "w", "epoch": "$epoch", "partitions": [{"partition": 0, "fence": 2**64, "sequence": 1}]},
        {"session_id": "w", "epoch": -1, "partitions": ["$good"]},
        {"session_id": "a/b", "epoch": "$epoch", "partitions": ["$good"]},
    ]),
    (f"POST {OUT}/sessions/w/heartbeat", "bad_request", [None, {}, {"epoch": -1}, {"epoch": 2**64}, {"epoch": "now"}]),
    (f"DELETE {OUT}/sessions/w", "bad_request", [None]),
    (f"POST {OUT}/sessions", "bad_request", [
        {}, {"session_id": ""}, {"session_id": "a/b"}, {"session_id": "w" * 256}, {"session_id": 1},
        {"session_id": "x", "ttl": 1}, {"session_id": "x", "ttl": 86_400}, {"session_id": "x", "ttl": "30"},
    ]),
    # -- settings
    ("PUT consumers/a%20b", "bad_request", [{}]),
    ("PUT consumers/" + "d" * 256, "bad_request", [{}]),
    ("PUT consumers/fresh", "beyond_end", [{"last_sequence": BEYOND}, {"start": BEYOND}, {"seek": BEYOND}]),
    ("PUT consumers/fresh", "mode_mismatch", [{"mode": "shared", "last_sequence": 1}]),
    ("PUT consumers/fresh", "bad_request", [
        [], {"mode": "both"}, {"start": -1}, {"start": 1.5}, {"start": "soon"}, {"start": {"time": "soon"}},
        {"start": True}, {"name": "x"},
    ]),
    (f"PUT {QUEUE}", "bad_request", [
        {"max_deliver": -1}, {"max_deliver": 2**40}, {"max_deliver": 1.5}, {"ack_wait": 0}, {"ack_wait": LONG + 1},
        {"dead_letter": "orders"}, {"dead_letter": "../x.dlq"}, {"dead_letter": ""}, {"important": "yes"},
        {"filter": "a=b"}, {"filter": [{"header": "a"}]}, {"filter": [{"header": "a", "equals": "b", "prefix": "c"}]},
        {"filter": [{"header": "", "equals": "b"}]},
        {"filter": [{"header": "a", "equals": 1}]}, {"filter": [{"header": "a", "equals": "b"}] * 17},
        {"filter": [{"header": "a", "equals": "\ud800"}]}, {"filter": [{"header": "a", "matches": ".*"}]},
    ]),
    # -- dead letters
    ("POST dead-letters/replay", "bad_request", [
        {"sequences": []}, {"sequences": ["x"]}, {"sequences": [-1]}, {"all": True},
    ]),
    ("GET dead-letters?start=soon", "bad_request", [None]),
    ("GET dead-letters?limit=1001", "bad_request", [None]),
    # -- a durable that there is not
    ("GET consumers/nobody", "unknown_durable", [None]),
    ("DELETE consumers/nobody", "unknown_durable", [None]),
    ("POST consumers/nobody/ack", "unknown_durable", [{"sequence": 1}, ANOTHER]),
    ("POST consumers/nobody/lease", "unknown_durable", [{}, {"wait": 5}]),
    ("POST consumers/nobody/nack", "unknown_durable", [ANOTHER]),
    ("POST consumers/nobody/extend", "unknown_durable", [{"lease_id": "x", "seconds": 9}]),
    ("POST consumers/nobody/sessions", "unknown_durable", [{"session_id": "w"}]),
    ("POST consumers/nobody/sessions/w/heartbeat", "unknown_durable", [{"epoch": 1}]),
    ("DELETE consumers/nobody/sessions/w?epoch=1", "unknown_durable", [None]),
    ("GET subscribe?durable=nobody", "unknown_durable", [None]),
    ("GET subscribe?durable=nobody&wait=5", "unknown_durable", [None]),
    ("GET subscribe?durable=nobody&session=w&epoch=1", "unknown_durable", [None]),
]  # fmt: skip

QUERIES = [
    "start=-1", "start=soon", "start=" + TOO_LARGE, "start=1.5", "start=%C2%B2", "start=", "start=time:",
    "start=time:soon", "start=time:-1", "start=time:0001-01-01T00:00:00%2B14:00", "start=time:99999-01-01",
    "limit=0", "limit=1001", "limit=-1", "limit=many", "limit=1e3", "wait=-1", "wait=26", "wait=nan", "wait=inf",
    "partition=-1", "partition=x", "inline=maybe", "view=rows", "durable=", "durable=a%2Fb",
    "filter=", "filter=a", "filter==b", "filter=^=b", "filter=a=b,", "filter=a=b%5C",
    "filter=%ED%A0%80=x", "filter=" + ",".join(["a=b"] * 17),
    "durable=plain&filter=a=b", "durable=plain&partition=0", "durable=plain&epoch=1", "durable=plain&after=0:1",
    "session=w&epoch=1", "durable=out&session=w", "durable=out&session=w&epoch=x", "durable=out&session=w&epoch=-1",
    "durable=out&session=w&epoch=1&after=", "durable=out&session=w&epoch=1&after=0:1:2:3",
    "durable=out&session=w&epoch=1&after=0:-1", "durable=out&session=w&epoch=1&start=1",
]  # fmt: skip


@dataclass
class Shelf:
    """Durables of each kind, in the middle of their work."""

    live: Live
    subject: str
    values: dict[str, Any]

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return self.live.api(method, f"/v1/subjects/{self.subject}/{path}", body)

    def everything(self) -> Any:
        """All that a reader's call could change."""
        return self.call("GET", "consumers").json, self.call("GET", "dead-letters").json["messages"]

    def fill_in(self, body: Any) -> Any:
        if isinstance(body, dict):
            return {name: self.fill_in(value) for name, value in body.items()}
        if isinstance(body, list):
            return [self.fill_in(value) for value in body]
        return self.values.get(body, body) if isinstance(body, str) else body


@pytest.fixture(scope="module")
def shelf(live: Live) -> Shelf:
    """`queue` has two leases, `plain` nobody, `out` a session that fenced a namesake."""
    subject = "bad-delivery"
    given = fill(live, subject, "a", "b", "c", "d")
    queue = Durable(live, subject, "queue")
    queue.put(mode="shared", max_deliver=1)
    mine, other = (queue.post("lease", limit=1, seconds=LONG).json["lease_id"] for _ in range(2))
    Durable(live, subject, "plain").put(last_sequence=given[0], ack_wait=77)
    out = Durable(live, subject, "out")
    out.put()
    old, session = (out.post("sessions", session_id="w", ttl=300).json for _ in range(2))
    (share,) = session["partitions"]
    good = {"partition": share["partition"], "fence": share["fence"], "sequence": given[0]}
    values: dict[str, Any] = {f"${index}": sequence for index, sequence in enumerate(given)}
    values |= {"$mine": mine, "$other": other, "$old": old["epoch"], "$epoch": session["epoch"], "$good": good}
    return Shelf(live, subject, {**values, "$beyond": {**good, "sequence": BEYOND}})


CALLS = [(call, code, body) for call, code, bodies in TABLE for body in bodies]


@pytest.mark.parametrize(("call", "code", "body"), CALLS, ids=[f"{call} {body}"[:100] for call, _, body in CALLS])
def test_a_bad_call_is_refused_and_changes_nothing(shelf: Shelf, call: str, code: str, body: Any) -> None:
    before = shelf.everything()

    method, path = call.split()
    refused = shelf.call(method, path, shelf.fill_in(body))

    status = {"bad_request": 400, "unknown_durable": 404}.get(code, 409)
    assert (refused.status, refused.code) == (status, code), refused.body
    assert refused.json["error"]["message"]
    assert shelf.everything() == before


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_bad_subscription_is_refused_before_it_begins(shelf: Shelf, accept: str) -> None:
    for query in QUERIES:
        path = f"/v1/subjects/{shelf.subject}/subscribe?{query}"
        refused = shelf.live.api("GET", path, headers={"accept": accept}, timeout=5)
        assert refused.status == 400, (query, refused.status, refused.body)
        assert refused.code == "bad_request", query
        assert refused.json["error"]["message"], query


@pytest.mark.parametrize("seen", ["soon", "-1", TOO_LARGE, "1.5", "1:", ":1", "1:2:3", "²"])
def test_a_stream_cannot_go_on_behind_what_is_no_event(shelf: Shelf, seen: str) -> None:
    headers = {"accept": "text/event-stream", "last-event-id": quote(seen, safe="")}
    refused = shelf.live.api("GET", f"/v1/subjects/{shelf.subject}/subscribe", headers=headers, timeout=5)
    assert (refused.status, refused.code) == (400, "bad_request"), refused.body
