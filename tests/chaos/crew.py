"""Everyone who uses the stack while it is killed: publishers of every kind, readers of every kind, and those who let
messages expire, delete them and purge them. Each round has a crew of its own, on subjects of its own."""

from __future__ import annotations

import base64
import itertools
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.publishers import Batches, InParts, Publisher, SideBySide, Tickets, Transactions
from tests.faults import load
from tests.faults.audit import Faults, find_faults
from tests.faults.load import NO_ANSWER, Producers, Reader, Threads, accepted, payload_of
from tests.faults.readers import Follower, Sharers, Workers
from tests.live import Live, eventually

SETTINGS: dict[str, dict[str, Any]] = {
    "batches": {"partitions": 3},
    "in-parts": {"max_messages": 5},
    "brief": {"ttl": 2},
}
_PAUSE = 0.05
_DONE_WITHIN = 120.0


class Deleter(Threads):
    """Deletes some of what a publisher had acknowledged, each until it is said to be done."""

    def __init__(self, live: Live, published: Producers, chance: random.Random) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self._live, self._published, self._chance = live, published, chance
        self.add(self._run)

    def _run(self) -> None:
        while not self.stopped.is_set():
            left = [name for name in list(self._published.acknowledged) if name not in self.gone]
            if len(left) < 10:
                self.stopped.wait(_PAUSE)
                continue
            name = self._chance.choice(left)
            self.gone.add(name)
            self._delete(self._published.acknowledged[name])

    def _delete(self, sequence: int) -> None:
        """To its end, also when the others stop: an unfinished one would be finished by the reconciler."""
        deadline = time.monotonic() + _DONE_WITHIN
        while time.monotonic() < deadline:
            try:
                answer = self._live.api("DELETE", f"/v1/messages/{sequence}?reason=chaos", timeout=20)
                if accepted(answer, 200) and answer.json["done"]:
                    return
            except NO_ANSWER:
                pass
            time.sleep(_PAUSE)
        raise AssertionError(f"message {sequence} was not deleted within {_DONE_WITHIN:.0f} s")


class Churn(Threads):
    """Subjects that are filled, purged, filled again and deleted."""

    def __init__(self, live: Live, prefix: str) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self._live, self._prefix = live, prefix
        self.add(self._run)

    def _run(self) -> None:
        for number in itertools.count():
            if self.stopped.is_set():
                return
            subject = f"{self._prefix}-{number}"
            self._until("POST", f"{subject}/messages", b"first", 200, 201)
            self._until("POST", f"{subject}/purge", b"{}", 200)
            self._until("POST", f"{subject}/messages", b"second", 200, 201)
            self._until("DELETE", subject, None, 200, 202, 204, 404)
            self.deleted.append(subject)

    def _until(self, method: str, path: str, body: bytes | None, *expected: int) -> None:
        deadline = time.monotonic() + _DONE_WITHIN
        while time.monotonic() < deadline:
            try:
                if accepted(self._live.api(method, f"/v1/subjects/{path}", body, timeout=20), *expected):
                    return
            except NO_ANSWER:
                pass
            time.sleep(_PAUSE)
        raise AssertionError(f"{method} {path} did not happen within {_DONE_WITHIN:.0f} s")


@dataclass
class Found:
    """What a round's check came to."""

    acknowledged: int = 0
    faults: Faults = field(default_factory=Faults)
    left_over: list[str] = field(default_factory=list)


class Crew:
    """`with crew.at_work():` while parts die; then `check`."""

    def __init__(self, live: Live, name: str, chance: random.Random) -> None:
        self.live = live
        self.name = name
        for kind, settings in SETTINGS.items():
            assert live.api("PUT", f"/v1/subjects/{self.subject(kind)}", settings).status in {200, 201}
        self.inline = Producers(load.inline(live, self.subject("inline")), "key", 4)
        self.named = Producers(load.uploads(live, self.subject("uploads")), "till", 2)
        self.brief = Producers(load.inline(live, self.subject("brief")), "short", 1)
        self.erased = Producers(load.inline(live, self.subject("erased")), "secret", 2)
        self.publishers: dict[str, Publisher] = {
            "batches": Batches(live, self.subject("batches")),
            "tickets": Tickets(live, self.subject("tickets")),
            "in-parts": InParts(live, self.subject("in-parts")),
            "side-by-side": SideBySide(live, self.subject("side-by-side")),
        }
        self.transactions = Transactions(live, self.subject("debit"), self.subject("credit"))
        senders = [*self.publishers.items(), ("transactions", self.transactions)]
        self._others = [Producers(publish, f"{kind}-", 1) for kind, publish in senders]
        self.deleter = Deleter(live, self.erased, chance)
        self.churn = Churn(live, self.subject("churn"))
        self.reader = Reader(live, self.subject("inline"))
        self.workers = Workers(live, self.subject("inline"), "work", 2)
        self.follower = Follower(live, self.subject("side-by-side"), "position")
        self.sharers = Sharers(live, self.subject("batches"), "sessions", 2)

    def subject(self, kind: str) -> str:
        return f"{self.name}.{kind}"

    @property
    def _producers(self) -> list[Producers]:
        return [self.inline, self.named, self.brief, self.erased, *self._others]

    @property
    def _threads(self) -> list[Threads]:
        return [*self._producers, self.deleter, self.churn, self.reader, self.workers, self.follower, self.sharers]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Whoever met something that must not be ends the round."""
        with ExitStack() as readers:
            for one in (self.reader, self.workers, self.follower, self.sharers):
                readers.enter_context(one)
            with ExitStack() as writers:
                for writer in (*self._producers, self.deleter, self.churn):
                    writers.enter_context(writer)
                yield
                for writer in (*self._producers, self.deleter, self.churn):
                    writer.stopped.set()
            for reader in (self.workers, self.follower, self.sharers):
                reader.wait_until_done()

    def problem(self) -> BaseException | None:
        return next((failed for one in self._threads for failed in one.failed), None)

    def acknowledged(self) -> dict[str, Mapping[str, int]]:
        """By kind: what must be there under which sequence."""
        kept = {name: at for name, at in self.erased.acknowledged.items() if name not in self.deleter.gone}
        return {
            "inline": self.inline.acknowledged,
            "uploads": self.named.acknowledged,
            "erased": kept,
            **{kind: publisher.acknowledged for kind, publisher in self.publishers.items()},
            "debit": self.transactions.acknowledged,
            "credit": self.transactions.acknowledged_there,
        }

    def check(self) -> Found:
        found = Found(len(self.brief.acknowledged) + len(self.deleter.gone))
        streams: dict[str, list[Any]] = {}
        for kind, acknowledged in self.acknowledged().items():
            found.acknowledged += len(acknowledged)
            messages, payloads = self._read(kind)
            streams[kind] = messages
            faults = find_faults(messages, payloads, acknowledged, deleted=kind == "erased")
            if kind not in SETTINGS:  # nothing goes from the head
                missing = set(acknowledged.values()) - set(payloads)
                faults.lost += [f"sequence {sequence} is not there" for sequence in missing]
            if kind == "erased":
                back = {payload_of(name) for name in self.deleter.gone} & set(payloads.values())
                found.left_over += [f"{payload[:40]!r} was deleted and is there" for payload in back]
            for into, these in vars(faults).items():
                getattr(found.faults, into).extend(f"{self.subject(kind)}: {one}" for one in these)
        self._check_readers(found, streams)
        self._check_ends(found)
        return found

    def _read(self, kind: str) -> tuple[list[Any], dict[int, bytes]]:
        messages = self.live.messages(self.subject(kind), inline="true")
        return messages, {
            int(message["sequence"]): base64.b64decode(message["data"])
            if "data" in message
            else self.live.payload(message)
            for message in messages
        }

    def _check_readers(self, found: Found, streams: Mapping[str, list[Any]]) -> None:
        given = {kind: [int(message["sequence"]) for message in messages] for kind, messages in streams.items()}
        seen = {
            "a reader of": (self.reader.read_to_the_end(), given["inline"]),
            "a follower of": (self.follower.seen, given["side-by-side"]),
            "workers on": (sorted(self.workers.handed), given["inline"]),
            "sessions on": (sorted(self.sharers.handed), sorted(given["batches"])),
        }
        for who, (got, expected) in seen.items():
            if got != expected:
                found.faults.reordered.append(f"{self.name}: {who} a subject saw {len(got)}, not {len(expected)}")
        for partition, order in self.sharers.order.items():
            if order != sorted(set(order)):
                found.faults.reordered.append(f"{self.name}: partition {partition} was acked twice or out of order")

    def _check_ends(self, found: Found) -> None:
        """What had its time is gone, and so is what was deleted."""
        brief = self.subject("brief")
        try:
            eventually(lambda: not self.live.messages(brief), 60)
        except AssertionError:
            found.left_over.append(f"{brief}: messages did not expire")
        listed = self.live.api("GET", f"/v1/subjects?limit=1000&prefix={self.churn._prefix}").json["subjects"]
        back = {entry["subject"] for entry in listed} & set(self.churn.deleted)
        found.left_over += [f"{subject} was deleted and is there" for subject in back]
