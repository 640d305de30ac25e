"""A full disk under Tarantool (rule 1): no answer is built on a row whose log write failed."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.durables import Durable, fill
from tests.faults import load
from tests.faults.audit import check_stream
from tests.faults.load import Producers, Reader
from tests.faults.readers import Follower, Workers
from tests.live import Answer, Live, start_live


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A stack whose events go nowhere, with a Tarantool that gets an error, not a signal, when its disk is full."""
    stack = start_live(tmp_path_factory.mktemp("full-disk"), webhook=False)
    stack.tarantool.stop()
    launch = stack.tarantool.launch
    stack.tarantool.launch = replace(launch, command=["env", "--ignore-signal=XFSZ", *launch.command])
    stack.tarantool.start()
    yield stack
    stack.stop()


@contextmanager
def full_disk(live: Live) -> Iterator[None]:
    """No file of Tarantool's may grow."""
    _, most = resource.prlimit(live.tarantool.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(live.tarantool.pid, resource.RLIMIT_FSIZE, (1, most))
    try:
        yield
    finally:
        resource.prlimit(live.tarantool.pid, resource.RLIMIT_FSIZE, (most, most))


def all_at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(len(calls)) as executor:
        return [future.result() for future in [executor.submit(call) for call in calls]]


def restart(live: Live) -> None:
    live.tarantool.kill()
    live.tarantool.start()


def test_concurrent_commits_on_a_full_disk_are_refused_and_none_is_called_a_duplicate(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    live.put(ticket, b"hello")
    upload = f"/v1/uploads/{ticket['upload_id']}"

    with full_disk(live):
        refused = all_at_once(
            *[lambda: live.api("POST", f"{upload}/complete")] * 16,
            *[lambda: live.publish(subject, b"inline", idempotency_key="k")] * 8,
            *[lambda: live.api("POST", f"/v1/subjects/{subject}/uploads", {"size": 1})] * 8,
        )
        seen = live.messages(subject)
        receipt = live.receipt(ticket["upload_id"], wait=0)

    assert {(answer.status, answer.code) for answer in refused} == {(503, "unavailable")}
    assert all(answer.headers["retry-after"] for answer in refused)
    assert (seen, receipt["state"]) == ([], "open")
    committed = live.api("POST", f"{upload}/complete").json
    inline = live.publish(subject, b"inline", idempotency_key="k")
    assert (committed["state"], inline.status) == ("committed", 201)
    restart(live)
    assert [message["sequence"] for message in live.messages(subject)] == [
        committed["sequence"],
        inline.json["sequence"],
    ]


def test_what_was_answered_while_the_disk_filled_again_and_again_is_there_after_a_restart(
    live: Live, subject: str
) -> None:
    other = f"{subject}.uploads"
    keyed = Producers(load.inline(live, subject), "key", 6)
    named = Producers(load.uploads(live, other), "producer", 4)
    reader = Reader(live, subject)

    with reader, keyed, named:
        for _ in range(15):
            with full_disk(live):
                keyed.wait_for_a_refusal()
            keyed.wait_for_more(4)
            named.wait_for_more(2)
    restart(live)

    messages = check_stream(live, subject, keyed.acknowledged)
    check_stream(live, other, named.acknowledged)
    assert reader.read_to_the_end() == [message["sequence"] for message in messages]


def test_sequences_of_failed_commits_are_not_seen_by_readers(live: Live, subject: str) -> None:
    first = live.publish(subject, b"before").json["sequence"]
    with full_disk(live):
        all_at_once(*[lambda: live.publish(subject, b"lost")] * 8)
        page = live.api("GET", f"/v1/subjects/{subject}/messages").json
    after = live.publish(subject, b"after").json["sequence"]

    assert [message["sequence"] for message in page["messages"]] == [first]
    assert page["next_sequence"] <= after, "a reader was sent behind a message that was still to come"
    assert [message["sequence"] for message in live.messages(subject)] == [first, after]


def test_no_reader_is_answered_on_a_full_disk_and_nothing_of_it_counts(live: Live, subject: str) -> None:
    first, second, _ = fill(live, subject, "a", "b", "c")
    queue, plain, shared_out = (Durable(live, subject, name) for name in ("queue", "plain", "out"))
    queue.put(mode="shared", max_deliver=1)
    plain.put(last_sequence=first)
    shared_out.put()
    lease = queue.post("lease", seconds=600).json["lease_id"]
    session = shared_out.post("sessions", session_id="w", ttl=300).json
    ack = {**session["partitions"][0], "sequence": second}
    del ack["position"]
    before = live.api("GET", f"/v1/subjects/{subject}/consumers").json

    with full_disk(live):
        refused = all_at_once(
            *[lambda: plain.post("ack", sequence=second)] * 8,
            *[lambda: queue.post("lease")] * 4,
            *[lambda: queue.post("ack", lease_id=lease, sequences=[first])] * 4,
            *[lambda: queue.post("nack", lease_id=lease, sequences=[first])] * 4,
            lambda: queue.post("extend", lease_id=lease, seconds=900),
            lambda: shared_out.post("ack", session_id="w", epoch=session["epoch"], partitions=[ack]),
            lambda: shared_out.post("sessions", session_id="other"),
            lambda: plain.put(seek="first"),
            lambda: Durable(live, subject, "fresh").put(),
            lambda: live.api("DELETE", plain.path),
        )
        during = live.api("GET", f"/v1/subjects/{subject}/consumers").json

    assert {(answer.status, answer.code) for answer in refused} == {(503, "unavailable")}
    assert during == before
    restart(live)
    assert live.api("GET", f"/v1/subjects/{subject}/consumers").json == before
    assert live.api("GET", f"/v1/subjects/{subject}/dead-letters").json["messages"] == []
    assert queue.post("ack", lease_id=lease, sequences=[first]).json == {"acked": 1}
    assert shared_out.post("ack", session_id="w", epoch=session["epoch"], partitions=[ack]).status == 200


def test_acks_answered_while_the_disk_filled_again_and_again_still_count_after_a_restart(
    live: Live, subject: str
) -> None:
    producers = Producers(load.inline(live, subject), "key", 3)
    workers, follower = Workers(live, subject, "work", 4), Follower(live, subject, "position")

    with workers, follower:
        with producers:
            for _ in range(8):
                with full_disk(live):
                    producers.wait_for_a_refusal()
                producers.wait_for_more(4)
            position = follower.position
            restart(live)
            producers.wait_for_more(4)
        assert follower.state()["last_sequence"] >= position
        for readers in (workers, follower):
            readers.wait_until_done()

    given = [message["sequence"] for message in live.messages(subject)]
    assert follower.seen == given
    assert workers.handed == set(given)
