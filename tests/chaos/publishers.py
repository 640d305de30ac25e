"""Ways to publish that must store a message once, however often it is sent: those that `tests.faults.load` lacks."""

from __future__ import annotations

import json
from typing import Any

from tests.faults.load import LARGE, PART, accepted, payload_of
from tests.live import Live, send

_LATER = (404, 409)


class Publisher:
    """Called with a name until it answers a sequence; one call may publish several messages. What was acknowledged
    stands in `acknowledged`, by the name that a payload tells."""

    def __init__(self, live: Live, subject: str) -> None:
        self.live = live
        self.subject = subject
        self.acknowledged: dict[str, int] = {}

    def __call__(self, name: str) -> int | None:
        raise NotImplementedError

    def note(self, name: str, receipt: Any) -> int | None:
        """Its sequence, once it is committed."""
        if receipt.get("state") != "committed":
            return None
        self.acknowledged[name] = int(receipt["sequence"])
        return self.acknowledged[name]

    def upload(self, ticket: Any, payload: bytes) -> Any:
        """Put and completed: the receipt, or nothing when it may be tried again."""
        if "parts" in ticket:
            for part in ticket["parts"]["urls"]:
                chunk = payload[(part["number"] - 1) * PART :][: part["size"]]
                if send("PUT", part["url"], chunk, timeout=20).status not in {200, 404}:  # made whole by an earlier try
                    return {}
        elif send("PUT", ticket["url"], payload, ticket["headers"], timeout=20).status not in {200, 412}:
            return {}
        done = self.live.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete", timeout=20)
        return done.json if accepted(done, 200, *_LATER) and done.status == 200 else {}


class Batches(Publisher):
    """Four messages of a named producer a call, of which some may be stored already."""

    SIZE = 4

    def __call__(self, name: str) -> int | None:
        producer, _, number = name.rpartition("-")
        seqnos = range((int(number) - 1) * self.SIZE + 1, int(number) * self.SIZE + 1)
        names = [f"{producer}-{seqno}" for seqno in seqnos]
        items = [
            {"data": payload_of(one).decode(), "producer_id": producer, "seqno": seqno}
            for one, seqno in zip(names, seqnos, strict=True)
        ]
        body = "\n".join(map(json.dumps, items)).encode()
        headers = {"content-type": "application/x-ndjson"}
        answer = self.live.api("POST", f"/v1/subjects/{self.subject}/messages/batch", body, headers, timeout=10)
        if not accepted(answer, 200, 201, 207):
            return None
        results = answer.json["results"]
        noted = [self.note(one, result) for one, result in zip(names, results, strict=True)]
        return None if None in noted else noted[-1]


class Tickets(Publisher):
    """Without a name: the same ticket until something has become of it."""

    def __init__(self, live: Live, subject: str) -> None:
        super().__init__(live, subject)
        self._open: dict[str, Any] = {}

    def __call__(self, name: str) -> int | None:
        payload = payload_of(name)
        ticket = self._open.get(name)
        if ticket is None:
            answer = self.live.api("POST", f"/v1/subjects/{self.subject}/uploads", {"size": len(payload)}, timeout=10)
            if not accepted(answer, 201):
                return None
            ticket = self._open[name] = answer.json
        receipt = self.live.api("GET", f"/v1/uploads/{ticket['upload_id']}", timeout=10)
        if not accepted(receipt, 200):
            return None
        if receipt.json["state"] == "expired":  # only when nothing had come
            del self._open[name]
            return None
        if receipt.json["state"] == "committed":
            return self.note(name, receipt.json)
        return self.note(name, self.upload(ticket, payload))


class InParts(Publisher):
    """Large payloads of a named producer."""

    def __call__(self, name: str) -> int | None:
        producer, _, seqno = name.rpartition("-")
        announced = {"size": LARGE, "producer_id": producer, "seqno": int(seqno)}
        answer = self.live.api("POST", f"/v1/subjects/{self.subject}/uploads", announced, timeout=10)
        if not accepted(answer, 200, 201):
            return None
        if answer.status == 200:
            return self.note(name, answer.json)
        return self.note(name, self.upload(answer.json, payload_of(name, LARGE)))


class SideBySide(Publisher):
    """A producer's uploads that end in the wrong order, and an inline message behind them: seqno order is kept."""

    UPLOADS = 2
    SIZE = UPLOADS + 1

    def __call__(self, name: str) -> int | None:
        producer, _, number = name.rpartition("-")
        first = (int(number) - 1) * self.SIZE + 1
        tickets = []
        for seqno in range(first, first + self.UPLOADS):
            one = f"{producer}-{seqno}"
            announced = {"size": len(payload_of(one)), "producer_id": producer, "seqno": seqno}
            answer = self.live.api("POST", f"/v1/subjects/{self.subject}/uploads", announced, timeout=10)
            if not accepted(answer, 200, 201):
                return None
            tickets.append((one, answer.json))
        last = f"{producer}-{first + self.UPLOADS}"
        tail = self._inline(producer, first + self.UPLOADS, payload_of(last))
        for one, ticket in reversed(tickets):
            if "url" in ticket:
                self.upload(ticket, payload_of(one))
        receipts = [(one, self._receipt(ticket)) for one, ticket in tickets]
        noted = [self.note(one, receipt) for one, receipt in [*receipts, (last, self._receipt(tail))]]
        return None if None in noted else noted[-1]

    def _inline(self, producer: str, seqno: int, payload: bytes) -> Any:
        headers = {"content-type": "text/plain", "x-mts-producer-id": producer, "x-mts-seqno": str(seqno)}
        answer = self.live.api("POST", f"/v1/subjects/{self.subject}/messages", payload, headers, timeout=10)
        # In use: this very message waits, and its answer was lost.
        return answer.json if accepted(answer, 200, 201, 202, 409) and answer.status != 409 else {}

    def _receipt(self, known: Any) -> Any:
        if known.get("state") == "committed" or "upload_id" not in known:
            return known
        answer = self.live.api("GET", f"/v1/uploads/{known['upload_id']}?wait=1", timeout=10)
        return answer.json if accepted(answer, 200, *_LATER) and answer.status == 200 else {}


class Transactions(Publisher):
    """The same message to two subjects, together or not at all."""

    def __init__(self, live: Live, subject: str, other: str) -> None:
        super().__init__(live, subject)
        self.other = other
        self.acknowledged_there: dict[str, int] = {}
        self._sent: dict[str, str] = {}

    def __call__(self, name: str) -> int | None:
        """A commit that was sent may have happened, whatever the answer: it is asked for before anything else."""
        if name not in self._sent:
            begun = self._begin(name)
            if begun is None:
                return None
            self._sent[name] = begun
        answer = self.live.api("POST", f"/v1/transactions/{self._sent[name]}/commit", timeout=10)
        if not accepted(answer, 200, 409):
            return None
        if answer.status == 409:
            assert answer.code == "transaction_ended", answer.body  # its time was over: nothing of it is visible
            del self._sent[name]
            return None
        here, there = (int(receipt["sequence"]) for receipt in answer.json["receipts"])
        self.acknowledged[name], self.acknowledged_there[name] = here, there
        return here

    def _begin(self, name: str) -> str | None:
        begun = self.live.api("POST", "/v1/transactions", {"timeout": 20}, timeout=10)
        if not accepted(begun, 200, 201):
            return None
        transaction_id = str(begun.json["transaction_id"])
        headers = {"content-type": "text/plain", "x-mts-transaction-id": transaction_id}
        for subject in (self.subject, self.other):
            path = f"/v1/subjects/{subject}/messages"
            answer = self.live.api("POST", path, payload_of(name), headers, timeout=10)
            if not accepted(answer, 202, 409) or answer.status == 409:
                return None
        return transaction_id
