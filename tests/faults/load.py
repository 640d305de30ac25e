"""Producers that do not give up, and a reader that goes on reading, while parts of the stack die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from types import TracebackType
from typing import Any

from tests.live import Answer, Live, eventually

Publish = Callable[[str], int | None]
"""Publishes the message of this name; its sequence when that is acknowledged, None when it may be tried again."""

GIVE_UP_AFTER = 60.0
STANDING = 0.3
NO_ANSWER = (OSError, HTTPException)
PART = 5 * 2**20
LARGE = PART + 1000
_TRY_AGAIN = {429, 503}


class UnexpectedAnswer(Exception):  # noqa: N818 - says what happened
    """An answer that no producer should get, whatever has died."""


def payload_of(name: str, size: int = 0) -> bytes:
    """The same for the same name: some hundred bytes, or a given size."""
    text = f"payload of {name} ".encode()
    return (text * (size // len(text) + 1))[:size] if size else text * 5


def name_of(payload: bytes | None) -> str | None:
    """Whose payload this is, to the last byte; None for no such one."""
    words = (payload or b"").split(b" ", 3)
    name = words[2].decode(errors="replace") if len(words) > 3 else ""
    size = LARGE if len(payload or b"") == LARGE else 0
    return name if payload == payload_of(name, size) else None


def inline(live: Live, subject: str) -> Publish:
    """Inline publishes, each with its name as Idempotency-Key."""

    def publish(name: str) -> int | None:
        headers = {"content-type": "text/plain", "idempotency-key": name}
        path = f"/v1/subjects/{subject}/messages"
        answer = live.api("POST", path, payload_of(name), headers, timeout=10)
        return int(answer.json["sequence"]) if accepted(answer, 200, 201) else None

    return publish


def uploads(live: Live, subject: str) -> Publish:
    """Ticket, PUT, `complete`; the name is `<producer>-<seqno>`."""

    def publish(name: str) -> int | None:
        producer, _, seqno = name.rpartition("-")
        payload = payload_of(name)
        announced = {"size": len(payload), "producer_id": producer, "seqno": int(seqno)}
        ticket = live.api("POST", f"/v1/subjects/{subject}/uploads", announced, timeout=10)
        if not accepted(ticket, 200, 201):
            return None
        if ticket.status == 200:
            return _sequence(ticket.json)
        stored = live.put(ticket.json, payload)
        if stored.status not in {200, 412}:
            return None
        done = live.api("POST", f"/v1/uploads/{ticket.json['upload_id']}/complete", timeout=10)
        return _sequence(done.json) if accepted(done, 200, 404, 409) and done.status == 200 else None

    return publish


def accepted(answer: Answer, *expected: int) -> bool:
    """Whether it is one of these; False for what may be tried again."""
    if answer.status in expected:
        return True
    if answer.status in _TRY_AGAIN:
        return False
    raise UnexpectedAnswer(f"{answer.status} {answer.body!r}")


def _sequence(receipt: Any) -> int | None:
    return int(receipt["sequence"]) if receipt["state"] == "committed" else None


class Threads:
    """Runs until the `with` block ends; what a thread raises is raised there."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failed: list[BaseException] = []

    def __enter__(self) -> Any:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        if error is None and self.failed:
            raise self.failed[0]

    def add(self, run: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                run(*arguments)
            except BaseException as error:
                self.failed.append(error)

        self._threads.append(threading.Thread(target=guarded))


class Producers(Threads):
    """Each publishes one message after the other, and the same one again until it is acknowledged."""

    def __init__(self, publish: Publish, names: str, count: int) -> None:
        super().__init__()
        self._publish = publish
        self.acknowledged: dict[str, int] = {}
        self.tries: Counter[str] = Counter()
        self._acknowledged_at = time.monotonic()
        for number in range(count):
            self.add(self._run, f"{names}{number}")

    def wait_for_more(self, count: int) -> None:
        """Until so many more messages are acknowledged."""
        target = len(self.acknowledged) + count
        eventually(lambda: self.failed or len(self.acknowledged) >= target, within=GIVE_UP_AFTER)

    def wait_for_a_refusal(self) -> None:
        """Until another message has to be sent again."""
        before = self.repeated
        eventually(lambda: self.failed or self.repeated > before, within=GIVE_UP_AFTER)

    def stands_still(self) -> bool:
        """Nothing was acknowledged for a while."""
        return time.monotonic() - self._acknowledged_at > STANDING

    @property
    def repeated(self) -> int:
        """How many messages had to be sent more than once."""
        return sum(1 for count in list(self.tries.values()) if count > 1)

    def _run(self, producer: str) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            name = f"{producer}-{number}"
            self.acknowledged[name] = self._until_acknowledged(name)
            self._acknowledged_at = time.monotonic()

    def _until_acknowledged(self, name: str) -> int:
        deadline = time.monotonic() + GIVE_UP_AFTER
        while time.monotonic() < deadline:
            self.tries[name] += 1
            try:
                sequence = self._publish(name)
            except NO_ANSWER:
                sequence = None
            if sequence is not None:
                return sequence
            time.sleep(0.05)
        raise AssertionError(f"{name} was not acknowledged within {GIVE_UP_AFTER} s")


class Reader(Threads):
    """Reads a subject from its beginning on, always from where the last page said."""

    def __init__(self, live: Live, subject: str) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._live = live
        self._path = f"/v1/subjects/{subject}/messages?limit=1000&start="
        self._next = 1
        self.add(self._run)

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                self._read_on()
            except NO_ANSWER:
                self.stopped.wait(0.05)

    def _read_on(self) -> bool:
        answer = self._live.api("GET", f"{self._path}{self._next}", timeout=10)
        if not accepted(answer, 200):
            return True
        page = answer.json
        self.seen += [int(message["sequence"]) for message in page["messages"]]
        more = bool(page["next_sequence"] != self._next)
        self._next = page["next_sequence"]
        return more

    def read_to_the_end(self) -> list[int]:
        """All that was seen, with what has come since the threads ended."""
        while self._read_on():
            pass
        return self.seen
