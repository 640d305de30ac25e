"""Readers of every kind that do not give up while parts of the stack die, and notice at once when a promise is broken.

What was acked when a request was sent must not be in its answer; an ack counts when it was answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.faults.load import NO_ANSWER, Threads, accepted
from tests.integration.test_event_stream import stream
from tests.live import Answer, Live, eventually

PAUSE = 0.05
WAIT = 1
LEASE = 3
TTL = 5


class _Readers(Threads):
    """`acked` are messages whose ack was answered; `handed` all that were ever given to a reader."""

    def __init__(self, live: Live, subject: str, durable: str, **settings: Any) -> None:
        super().__init__()
        self.live = live
        self.path = f"/v1/subjects/{subject}/consumers/{durable}"
        self.page = f"/v1/subjects/{subject}/subscribe?durable={durable}&limit=20&wait={WAIT}"
        self.acked: set[int] = set()
        self.handed: set[int] = set()
        self._lock = threading.Lock()
        assert live.api("PUT", self.path, settings).status == 201

    def state(self) -> Any:
        return self.live.api("GET", self.path).json

    def wait_until_done(self) -> None:
        """Until all is acked, or a reader has noticed something wrong."""
        eventually(lambda: self.failed or self.state()["lag"] == 0, 60)

    def call(self, method: str, path: str, body: Any = None, *also: int) -> Answer | None:
        """None when it may be tried again."""
        try:
            answer = self.live.api(method, path, body, timeout=10)
        except NO_ANSWER:
            answer = None
        if answer is None or not accepted(answer, 200, 201, *also):
            time.sleep(PAUSE)
            return None
        return answer

    def repeat(self, step: Callable[[], None]) -> None:
        while not self.stopped.is_set():
            step()

    def acked_so_far(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self.acked)

    def take(self, page: Any, before: frozenset[int]) -> list[int]:
        given = [int(message["sequence"]) for message in page["messages"]]
        assert given == sorted(set(given)), "out of order"
        assert not before & set(given), "handed out after its ack was answered"
        with self._lock:
            self.handed.update(given)
        return given

    def note(self, acked: list[int]) -> None:
        with self._lock:
            self.acked.update(acked)


class Workers(_Readers):
    """They share a durable by leases. `poison`: each so many-th sequence is given back until it is a dead letter; tries
    that end without a word count as well, so others may become dead letters too."""

    def __init__(self, live: Live, subject: str, durable: str, count: int, *, poison: int = 0) -> None:
        super().__init__(live, subject, durable, mode="shared", max_deliver=3 if poison else 0)
        self._poison = poison
        for _ in range(count):
            self.add(self.repeat, self._work)

    def _work(self) -> None:
        before = self.acked_so_far()
        leased = self.call("POST", f"{self.path}/lease", {"limit": 5, "seconds": LEASE, "wait": WAIT})
        if leased is None or not leased.json["messages"]:
            return
        given = self.take(leased.json, before)
        bad = [sequence for sequence in given if self._poison and sequence % self._poison == 0]
        if bad:
            self._end("nack", leased.json["lease_id"], bad)
        good = [sequence for sequence in given if sequence not in bad]
        if good and self._end("ack", leased.json["lease_id"], good):
            self.note(good)

    def _end(self, how: str, lease_id: str, sequences: list[int]) -> bool:
        """Whether it is known to have counted."""
        done = self.call("POST", f"{self.path}/{how}", {"lease_id": lease_id, "sequences": sequences}, 409)
        if done is not None and done.status == 409:
            assert done.code == "lease_lost"
        return done is not None and done.status == 200


class Follower(_Readers):
    """One reader with a position."""

    def __init__(self, live: Live, subject: str, durable: str) -> None:
        super().__init__(live, subject, durable)
        self.position = 0
        self.seen: list[int] = []
        self.add(self.repeat, self._read)

    def _read(self) -> None:
        page = self.call("GET", self.page)
        if page is None:
            return
        assert int(page.json["position"]) >= self.position, "the position went back"
        given = self.take(page.json, self.acked_so_far())
        self.seen += [sequence for sequence in given if sequence > max(self.seen, default=0)]
        if not given:
            return
        done = self.call("POST", f"{self.path}/ack", {"sequence": given[-1]})
        if done is not None:
            self.position = int(done.json["last_sequence"])
            assert self.position >= given[-1]
            self.note(given)


class Sharers(_Readers):
    """They share the partitions of a durable by sessions. `order`: what was acked of each, one after another; `steps`:
    of all, in the order in which the acks were sent; `begun`: up to where the acks of each partition had been sent when
    the first message of a partition came."""

    def __init__(self, live: Live, subject: str, durable: str, count: int) -> None:
        super().__init__(live, subject, durable)
        self.order: dict[int, list[int]] = {}
        self.steps: dict[int, list[int]] = {}
        self.begun: dict[int, dict[int, int]] = {}
        self._sent: dict[int, int] = {}
        self._turns = 0
        for number in range(count):
            self.add(self._run, f"reader{number}")

    def _run(self, session_id: str) -> None:
        while not self.stopped.is_set():
            joined = self.call("POST", f"{self.path}/sessions", {"session_id": session_id, "ttl": TTL})
            while joined is not None and not self.stopped.is_set():
                if not self._read(session_id, joined.json["epoch"]):
                    break

    def _read(self, session_id: str, epoch: int) -> bool:
        """False when it has to join again."""
        before = self.acked_so_far()
        page = self.call("GET", f"{self.page}&session={session_id}&epoch={epoch}", None, 409)
        if page is None:
            return True
        if page.status == 409:
            assert page.code in {"unknown_session", "session_fenced"}
            return False
        if not self.take(page.json, before):
            return True
        with self._lock:
            for message in page.json["messages"]:
                self.begun.setdefault(message["partition"], dict(self._sent))
        fences = {share["partition"]: share["fence"] for share in page.json["partitions"]}
        for partition, fence in fences.items():
            mine = [message for message in page.json["messages"] if message["partition"] == partition]
            if mine:
                self._ack(session_id, epoch, fence, mine)
        return True

    def _ack(self, session_id: str, epoch: int, fence: int, messages: list[Any]) -> None:
        partition, sequences = messages[0]["partition"], [int(message["sequence"]) for message in messages]
        ack = {"partition": partition, "fence": fence, "sequence": sequences[-1]}
        body = {"session_id": session_id, "epoch": epoch, "partitions": [ack]}
        with self._lock:
            self._turns += 1
            turn, self._sent[partition] = self._turns, max(self._sent.get(partition, 0), sequences[-1])
        done = self.call("POST", f"{self.path}/ack", body, 409)
        if done is not None and done.status == 200:
            self.note(sequences)
            with self._lock:
                self.order.setdefault(partition, []).extend(sequences)
                self.steps[turn] = sequences
        elif done is not None:
            assert done.code in {"partition_lost", "position_moved", "unknown_session", "session_fenced"}


class EventReader(Threads):
    """As the protocol has it: connects again, and says what it has seen."""

    def __init__(self, live: Live, subject: str) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._live, self._subject, self._last_id = live, subject, "0"
        self.add(self._run)

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                self._read()
            except (*NO_ANSWER, ValueError, IndexError):
                time.sleep(PAUSE)

    def _read(self) -> None:
        with stream(self._live, self._subject, last_event_id=self._last_id) as events:
            events.connection.settimeout(WAIT)
            for block in events.blocks() if events.status == 200 else ():
                if block.get("event") == "message":
                    self.seen.append(int(block["id"]))
                self._last_id = block.get("id", self._last_id)
                if self.stopped.is_set():
                    return
