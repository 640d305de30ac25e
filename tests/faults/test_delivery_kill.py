"""`kill -9` under readers of every kind: what was published comes, what was acked stays so, and nothing else counts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.durables import Durable, fill, sequences
from tests.faults import load
from tests.faults.load import Producers
from tests.faults.readers import EventReader, Follower, Sharers, Workers
from tests.faults.test_kill import kill, part_of
from tests.live import Live, eventually, start_live


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("delivery-kill"), webhook=False)
    yield live
    live.stop()


@pytest.mark.parametrize("name", ["host", "tarantool"])
def test_readers_of_every_kind_live_through_kills(own: Live, subject: str, name: str) -> None:
    own.api("PUT", f"/v1/subjects/{subject}", {"partitions": 3})
    part = part_of(own, name)
    producers = Producers(load.inline(own, subject), "key", 4)
    workers, follower = Workers(own, subject, "work", 4, poison=7), Follower(own, subject, "position")
    sharers, events = Sharers(own, subject, "sessions", 2), EventReader(own, subject)

    with workers, follower, sharers, events:
        with producers:
            for _ in range(2):
                producers.wait_for_more(40)
                kill(part)
                part.start()
            producers.wait_for_more(20)
        given = sorted(int(message["sequence"]) for message in own.messages(subject))
        for readers in (workers, follower, sharers):
            readers.wait_until_done()
        eventually(lambda: len(events.seen) >= len(given))

    assert set(producers.acknowledged.values()) <= set(given), "acknowledged and lost"
    assert events.seen == given
    assert follower.seen == given
    assert follower.state()["last_sequence"] == given[-1]
    assert workers.handed == sharers.handed == set(given)
    letters = [int(letter["headers"]["mts-dlq-sequence"]) for letter in own.messages(f"{subject}.dlq")]
    assert len(letters) == len(set(letters)), "given up twice"
    assert {sequence for sequence in given if sequence % 7 == 0} <= set(letters) <= set(given)
    assert not workers.acked & set(letters), "given up after it was acked"
    assert sharers.state()["last_sequence"] >= given[-1]
    for partition, order in sharers.order.items():
        assert order == sorted(set(order)), f"partition {partition} was acked twice or out of order"


def test_a_worker_killed_while_it_waits_keeps_nothing(own: Live, subject: str) -> None:
    """The lease may go to a connection that is dead already: then it ends, and another worker gets the message."""
    durable = Durable(own, subject)
    durable.put(mode="shared")
    body = b'{"wait": 20, "seconds": 1}'
    for _ in range(3):
        hang_up(own, "POST", f"{durable.path}/lease", body)
    (sequence,) = fill(own, subject, "a")
    lease = durable.post("lease", wait=20).json
    assert sequences(lease) == [sequence]
    assert durable.post("ack", lease_id=lease["lease_id"], sequences=[sequence]).json == {"acked": 1}
    assert durable.now["lag"] == 0


def test_the_partitions_of_a_killed_reader_go_to_the_others(own: Live, subject: str) -> None:
    own.api("PUT", f"/v1/subjects/{subject}", {"partitions": 2})
    given = [sequence for _ in range(4) for sequence in fill(own, subject, "a")]
    durable = Durable(own, subject)
    durable.put()
    dead = durable.post("sessions", session_id="dead", ttl=5).json
    alive = durable.post("sessions", session_id="alive", ttl=60).json
    (lost,) = durable.post("sessions/dead/heartbeat", epoch=dead["epoch"]).json["partitions"]
    hang_up(own, "GET", f"/v1/subjects/{subject}/subscribe?durable=billing&session=dead&epoch={dead['epoch']}&wait=20")

    beat = {"epoch": alive["epoch"]}
    eventually(lambda: len(durable.post("sessions/alive/heartbeat", **beat).json["partitions"]) == 2)
    read = durable.read(session="alive", epoch=alive["epoch"])
    assert sequences(read) == given, "also what the other had read and not acked"
    late = {"partition": lost["partition"], "fence": lost["fence"], "sequence": given[-1]}
    refused = durable.post("ack", session_id="dead", epoch=dead["epoch"], partitions=[late])
    assert refused.code == "unknown_session"
    assert durable.now["lag"] == 4


def hang_up(live: Live, method: str, path: str, body: bytes = b"") -> None:
    """A request whose sender is gone before the answer."""
    url = urlsplit(live.url)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {live.token}\r\n"
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
