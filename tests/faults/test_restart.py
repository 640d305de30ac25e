"""What Tarantool must still know after its end: proofs, those who wait, and how far the sequence had come."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from minitoolstream.domain.limits import JSON_SAFE_INTEGER
from tests.durables import Durable, sequences
from tests.integration.test_event_stream import stream
from tests.live import Live, eventually, start_live
from tests.servers import tarantool_program


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A stack of this module's own, for its Tarantool ends in every test."""
    stack = start_live(tmp_path_factory.mktemp("restart"))
    yield stack
    stack.stop()


def restart(live: Live) -> None:
    live.tarantool.kill()
    live.tarantool.start()


def with_tarantool_stopped(live: Live, lua: str) -> None:
    """Run code on the stopped server's data, as an administrator could."""
    live.tarantool.stop()
    folder = live.tarantool.launch.folder
    script = f"box.cfg{{work_dir = {json.dumps(str(folder))}, log_level = 1}} {lua} os.exit(0)"
    program = tarantool_program()
    environ = {**os.environ, **program.environ}
    command = [str(program.path), "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    live.tarantool.start()


def named(live: Live, subject: str, seqno: int, **more: str) -> Any:
    return live.publish(subject, b"x", x_mts_producer_id="p", x_mts_seqno=str(seqno), **more)


def test_a_duplicate_still_has_its_proof(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 1, producer_id="up", seqno=3)
    live.put(ticket, b"u")
    first = {
        "inline": named(live, subject, 1).json["sequence"],
        "key": live.publish(subject, b"k", idempotency_key="k").json["sequence"],
        "upload": live.receipt(ticket["upload_id"])["sequence"],
    }

    restart(live)

    again = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1, "producer_id": "up", "seqno": 3})
    assert (again.status, again.json["duplicate"], again.json["sequence"]) == (200, True, first["upload"])
    keyed = live.publish(subject, b"k", idempotency_key="k")
    for answer, name in ((named(live, subject, 1), "inline"), (keyed, "key")):
        assert (answer.status, answer.json["sequence"]) == (200, first[name])
    assert live.publish(subject, b"other", idempotency_key="k").status == 422
    assert live.receipt(ticket["upload_id"], wait=0)["sequence"] == first["upload"]
    assert len(live.messages(subject)) == 3


def test_what_waits_is_still_waiting_and_is_released(live: Live, subject: str) -> None:
    first, second = (live.ticket(subject, 1, producer_id="p", seqno=seqno) for seqno in (1, 2))
    live.put(second, b"2")
    third = named(live, subject, 3).json

    restart(live)

    assert live.receipt(second["upload_id"], wait=0)["waits_for"] == first["upload_id"]
    live.put(first, b"1")
    assert live.receipt(third["upload_id"])["state"] == "committed"
    assert [live.payload(message) for message in live.messages(subject)] == [b"1", b"2", b"x"]


def test_a_zombie_stays_fenced(live: Live, subject: str) -> None:
    path = f"/v1/subjects/{subject}/producers"
    old = live.api("POST", path, {"producer_id": "p"}).json["epoch"]
    live.api("POST", path, {"producer_id": "p"})

    restart(live)

    assert named(live, subject, 1, x_mts_epoch=str(old)).code == "producer_fenced"
    assert live.api("POST", path, {"producer_id": "p"}).json["epoch"] > old + 1


def test_messages_offsets_and_counters_are_as_before(live: Live, subject: str) -> None:
    live.publish(subject, b"one")
    live.publish(subject, b"two")
    before = live.messages(subject)

    restart(live)
    live.publish(subject, b"three")

    after = live.messages(subject)
    places = [(message["sequence"], message["offset"], message["create_at"]) for message in after]
    assert places[:2] == [(message["sequence"], message["offset"], message["create_at"]) for message in before]
    assert [message["offset"] for message in after] == [0, 1, 2]
    listed = live.api("GET", "/v1/subjects?limit=1000").json["subjects"]
    (counted,) = [entry for entry in listed if entry["subject"] == subject]
    assert (counted["messages"], counted["bytes"]) == (3, 11)


DELETE_ALL = "for _, row in box.space.message:pairs() do box.space.message:delete(row[1]) end"
WAYS = {
    "by its log": DELETE_ALL,
    "by a snapshot after": f"{DELETE_ALL} box.snapshot()",
    "by a snapshot before": f"box.snapshot() {DELETE_ALL}",
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_sequences_never_go_back_when_every_row_is_gone(live: Live, subject: str, how: str) -> None:
    last = max(int(live.publish(subject, b"x").json["sequence"]) for _ in range(3))

    with_tarantool_stopped(live, how)

    assert live.messages(subject) == []
    page = live.api("GET", f"/v1/subjects/{subject}/messages?start=new").json
    assert int(page["next_sequence"]) == last + 1
    assert int(live.publish(subject, b"y").json["sequence"]) == last + 1
    restart(live)
    assert int(live.publish(subject, b"z").json["sequence"]) == last + 2


def test_above_two_to_the_53_sequences_are_strings_and_taken_as_such(live: Live, subject: str) -> None:
    with_tarantool_stopped(live, f"box.sequence.message:set({JSON_SAFE_INTEGER - 2}ULL)")
    eventually(live.hosts[0].ready)  # the ceiling follows

    shown = [live.publish(subject, b"%d" % number).json["sequence"] for number in range(5)]
    lines = b"\n".join(b'{"data": "%d"}' % number for number in (5, 6))
    path, kind = f"/v1/subjects/{subject}/messages", {"content-type": "application/x-ndjson"}
    shown += [result["sequence"] for result in live.api("POST", f"{path}/batch", lines, kind).json["results"]]

    top = JSON_SAFE_INTEGER
    assert shown == [top - 1, top, str(top + 1), str(top + 2), str(top + 3), str(top + 4), str(top + 5)]
    messages = live.messages(subject)
    assert [message["sequence"] for message in messages] == shown
    assert [live.payload(message) for message in messages] == [b"%d" % number for number in range(7)]
    for place, sequence in enumerate(shown):
        page = live.api("GET", f"{path}?start={sequence}&limit=2").json
        assert [message["sequence"] for message in page["messages"]] == shown[place : place + 2]
        assert live.api("GET", f"/v1/messages/{sequence}").json["offset"] == place
    assert live.api("GET", f"/v1/subjects/{subject}/latest").json["latest_sequence"] == shown[-1]
    assert live.messages(subject, start=str(top + 4))[0]["sequence"] == str(top + 4)


def test_above_two_to_the_53_seqnos_are_taken_as_numbers_and_strings(live: Live, subject: str) -> None:
    high = JSON_SAFE_INTEGER + 1
    first = named(live, subject, high)
    ticket = live.ticket(subject, 1, producer_id="p", seqno=str(high + 1))
    live.put(ticket, b"t")

    for seqno in (high + 1, str(high + 1)):
        known = live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1, "producer_id": "p", "seqno": seqno})
        assert (known.status, known.json["duplicate"]) == (200, True)
    again = named(live, subject, high)
    assert (again.status, again.json["sequence"]) == (200, first.json["sequence"])
    assert named(live, subject, high - 1).code == "seqno_skipped"
    assert len(live.messages(subject)) == 2


def test_above_two_to_the_53_positions_leases_and_events_are_strings_too(live: Live, subject: str) -> None:
    above = str(max(int(live.publish(subject, b"x").json["sequence"]), JSON_SAFE_INTEGER))
    with_tarantool_stopped(live, f"box.sequence.message:set({above}ULL)")
    given = [live.publish(subject, b"%d" % number).json["sequence"] for number in range(4)]
    assert all(isinstance(sequence, str) for sequence in given)
    queue, plain, shared_out = (Durable(live, subject, name) for name in ("queue", "plain", "out"))

    queue.put(mode="shared", start=given[0], max_deliver=1)
    lease = queue.post("lease", limit=3).json
    assert sequences(lease) == given[:3]
    assert queue.post("extend", lease_id=lease["lease_id"], seconds=60, sequences=given[:2]).status == 200
    assert queue.post("ack", lease_id=lease["lease_id"], sequences=[given[0]]).json == {"acked": 1}
    assert queue.post("nack", lease_id=lease["lease_id"], sequences=[given[1]]).json["dead_lettered"] == 1
    (dead,) = live.api("GET", f"/v1/subjects/{subject}/dead-letters").json["messages"]
    assert dead["headers"]["mts-dlq-sequence"] == given[1]
    assert (queue.now["outstanding"], queue.now["lag"], queue.now["last_sequence"]) == (1, 2, given[1])

    plain.put(start=given[0])
    assert sequences(plain.read()) == given
    assert plain.post("ack", sequence=given[1]).json == {"last_sequence": given[1]}
    assert plain.put(seek=given[2]).json["lag"] == 2
    assert plain.post("ack", sequence=str(int(dead["sequence"]) + 1)).code == "beyond_end"

    shared_out.put(start=given[0])
    session = shared_out.post("sessions", session_id="w").json
    (share,) = session["partitions"]
    after = f"{share['partition']}:{given[0]}:{share['fence']}"
    read = shared_out.read(session="w", epoch=session["epoch"], after=after)
    assert sequences(read) == given[1:]
    ack = {"partition": share["partition"], "fence": share["fence"], "sequence": given[2]}
    acked = shared_out.post("ack", session_id="w", epoch=session["epoch"], partitions=[ack])
    assert acked.json == {"last_sequence": given[2]}
    with stream(live, subject, last_event_id=given[2]) as events:
        assert [event["sequence"] for event in events.events(1)] == given[3:]
    assert live.api("POST", f"/v1/subjects/{subject}/dead-letters/replay", {"sequences": [dead["sequence"]]}).json == {
        "replayed": 1,
        "more": False,
    }
