"""What concurrent readers saw, over two hosts: one order for all, no gaps, and nothing older than what was known."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.durables import fill
from tests.faults.load import Threads
from tests.faults.readers import EventReader, Follower
from tests.live import Live, eventually, start_live

ENOUGH = 150


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = start_live(tmp_path_factory.mktemp("pair"), webhook=False, hosts=2)
    yield live
    live.stop()


@dataclass(frozen=True)
class Done:
    """A call: when it was sent, when it was answered, and the sequences it told of."""

    sent: float
    answered: float
    first: int
    last: int


class Publishers(Threads):
    """Single messages and batches, to one host; each looks for its message at the other at once."""

    def __init__(self, live: Live, other: Live, subject: str, count: int) -> None:
        super().__init__()
        self.done: list[Done] = []
        self._live, self._other, self._subject = live, other, subject
        for number in range(count):
            self.add(self._run, number)

    def _run(self, number: int) -> None:
        for turn in itertools.count():
            if self.stopped.is_set():
                return
            sent = time.monotonic()
            given = fill(self._live, self._subject, *["x"] * (1 if (turn + number) % 3 else 4))
            assert given == list(range(given[0], given[0] + len(given))), "a batch is in one piece"
            self.done.append(Done(sent, time.monotonic(), given[0], given[-1]))
            path = f"/v1/subjects/{self._subject}/messages?start={given[-1]}&limit=1"
            (found,) = self._other.api("GET", path).json["messages"]
            assert found["sequence"] == given[-1], "acknowledged, and not there yet at the other host"


class Lookers(Threads):
    """They ask for the latest sequence, at both hosts in turn."""

    def __init__(self, hosts: list[Live], subject: str, count: int) -> None:
        super().__init__()
        self.done: list[Done] = []
        self._hosts, self._path = hosts, f"/v1/subjects/{subject}/latest"
        for _ in range(count):
            self.add(self._run)

    def _run(self) -> None:
        for host in itertools.cycle(self._hosts):
            if self.stopped.is_set():
                return
            sent = time.monotonic()
            latest = host.api("GET", self._path).json["latest_sequence"]
            self.done.append(Done(sent, time.monotonic(), latest, latest))


class Tail(Threads):
    """An ephemeral reader that waits for what comes."""

    def __init__(self, live: Live, subject: str) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._live, self._path, self._next = live, f"/v1/subjects/{subject}/subscribe?limit=7&wait=1", 1
        self.add(self._run)

    def _run(self) -> None:
        while not self.stopped.is_set():
            page = self._live.api("GET", f"{self._path}&start={self._next}").json
            assert page["next_sequence"] >= self._next, "next_sequence went back"
            self.seen += [message["sequence"] for message in page["messages"]]
            self._next = page["next_sequence"]


def test_all_readers_of_two_hosts_see_one_order_without_gaps(pair: Live, subject: str) -> None:
    one, two = (replace(pair, hosts=[host]) for host in pair.hosts)
    publishers = [Publishers(one, two, subject, 2), Publishers(two, one, subject, 2)]
    lookers = Lookers([one, two], subject, 2)
    tails = [Tail(host, subject) for host in (one, two)]
    events = [EventReader(host, subject) for host in (one, two)]
    followers = [Follower(host, subject, f"durable-{number}") for number, host in enumerate((one, two))]
    readers: list[Tail | EventReader | Follower] = [*tails, *events, *followers]

    with tails[0], tails[1], events[0], events[1], followers[0], followers[1]:
        with publishers[0], publishers[1], lookers:
            eventually(
                lambda: (
                    any(each.failed for each in (*publishers, lookers))
                    or sum(len(each.done) for each in publishers) >= ENOUGH
                ),
                60,
            )
        given = [message["sequence"] for message in pair.messages(subject)]
        eventually(lambda: all(reader.failed or len(reader.seen) >= len(given) for reader in readers))

    published = [done for each in publishers for done in each.done]
    assert given == sorted(sequence for done in published for sequence in range(done.first, done.last + 1))
    for reader in readers:
        assert reader.seen == given, f"{type(reader).__name__} saw another order"
    check_order_in_time(published, lookers.done)


def check_order_in_time(published: list[Done], looked: list[Done]) -> None:
    """Whatever was answered before a call was sent is known to it; and nothing is known that was not sent yet."""
    assert looked
    for later in [*published, *looked]:
        known = max((done.last for done in [*published, *looked] if done.answered < later.sent), default=0)
        if later in looked:
            assert later.last >= known, "a look back in time"
        else:
            assert later.first > known, "an earlier place in the order than something known before"
    for look in looked:
        assert look.last <= max((done.last for done in published if done.sent < look.answered), default=0)
