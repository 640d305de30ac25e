"""Durables on the host in memory: as simple as the SDK lets it be. Partitions are the header `partition`. No time
passes: what was leased stays so, what was given back comes at once. The contract tests hold it against a real host."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from minitoolstream.net.http1 import Body, HttpResponse
from tests.unit.fake_host import FakeHost, _error, _json

LONGEST_WAIT = 0.2
"""Seconds that a long poll takes here at most."""


@dataclass
class Durable:
    """`leased` and `waiting` (given back) are handed out and not done; `epochs` are those of the live sessions."""

    mode: str
    position: int
    filter: list[dict[str, str]] = field(default_factory=list)
    max_deliver: int = 5
    fence: int = 1
    epoch: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    leased: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    tries: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def move(self, position: int) -> None:
        """Whoever reads must begin again."""
        self.position = position
        self.fence += 1
        self.acked, self.leased, self.waiting, self.tries, self.done = {}, {}, set(), {}, set()

    def session_problem(self, name: str, epoch: int) -> str | None:
        if epoch > self.epochs.get(name, 0):
            return "unknown_session"
        return "session_fenced" if epoch < self.epochs[name] else None


class DeliveryHost(FakeHost):
    """`acks`: the bodies of all acks that were taken. `owned`: the partitions that sessions get."""

    def __init__(self) -> None:
        super().__init__(part_size=1 << 20)
        self.durables: dict[str, Durable] = {}
        self.acks: list[dict[str, Any]] = []
        self.nacks: list[dict[str, Any]] = []
        self.owned: tuple[int, ...] = (0,)
        self.inline = True
        self._leases = 0

    async def request(self, method: str, url: str, *, body: Body = b"", **more: Any) -> HttpResponse:
        waiting = "/subscribe" in url or url.endswith("/lease")
        deadline = asyncio.get_running_loop().time() + (LONGEST_WAIT if _waits(url, body) else 0)
        while True:
            before = len(self.messages)
            response = await super().request(method, url, body=body, **more)
            nothing = waiting and response.status == 200 and not _found(response.body)
            if not nothing or asyncio.get_running_loop().time() >= deadline:
                return response
            while len(self.messages) == before and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def _api(
        self, method: str, path: list[str], query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        match method, path:
            case "GET", ["subjects", subject, "subscribe"]:
                return self._subscribe(subject, query)
            case _, ["subjects", subject, "consumers", name, *rest]:
                asked = msgspec.json.decode(body) if body else query
                return self._consumer(method, subject, name, rest, asked)
        return super()._api(method, path, query, headers, body)

    # -- reading

    def _subscribe(self, subject: str, query: dict[str, str]) -> HttpResponse:
        latest = self._latest(subject)
        durable = self.durables.get(query["durable"]) if "durable" in query else None
        if "durable" in query and durable is None:
            return _error(404, "unknown_durable")
        if durable and durable.mode == "shared":
            return _error(409, "mode_mismatch")
        words = {"first": 0, "last": latest, "new": len(self.messages) + 1}
        start = query.get("start", "0")
        first = words[start] if start in words else int(start)
        after: dict[int, int] = {}
        if durable and "session" in query:
            if problem := durable.session_problem(query["session"], int(query["epoch"])):
                return _error(409, problem)
            read_to = [list(map(int, one.split(":"))) for one in query.get("after", "").split(",") if one]
            after = {partition: durable.acked.get(partition, durable.position) for partition in self.owned}
            for partition, sequence, *fence in read_to:
                if partition in after and fence in ([], [durable.fence]):
                    after[partition] = max(after[partition], sequence)
        elif durable:
            first = max(first, durable.position + 1)
        found = []
        for number in range(1, len(self.messages) + 1):
            message = self._message(number)
            if message["subject"] != subject or number < first:
                continue
            if "session" in query and number <= after.get(message["partition"], 1 << 60):
                continue
            if _fits(message["headers"], durable.filter if durable else _conditions(query.get("filter"))):
                found.append(message)
        page: dict[str, Any] = {"messages": found[: int(query["limit"])], "latest_sequence": latest}
        if query.get("view") == "extents":
            page["extents"] = [self._alone(message) for message in page["messages"]]
        page["next_sequence"] = page["messages"][-1]["sequence"] + 1 if len(found) > int(query["limit"]) else latest + 1
        if "extents" in page:
            del page["messages"]
        if durable:
            page |= {"position": durable.position, "fence": durable.fence}
        if durable and "session" in query:
            page["partitions"] = self._assigned(durable)
        return _json(200, page)

    def _alone(self, message: dict[str, Any]) -> dict[str, Any]:
        same = {name: message[name] for name in ("partition", "headers", "codec")}
        return {**self._extent([message["sequence"]]), "own": [], **same}

    def _message(self, sequence: int) -> dict[str, Any]:
        message = super()._message(sequence)
        message["partition"] = int(message["headers"].get("partition", 0))
        message["codec"] = self.messages[sequence - 1].meta.get("codec")
        if self.inline:
            message |= {"data": base64.b64encode(self.messages[sequence - 1].data).decode(), "encoding": "base64"}
        return message

    def _assigned(self, durable: Durable) -> list[dict[str, int]]:
        return [
            {"partition": one, "fence": durable.fence, "position": durable.acked.get(one, durable.position)}
            for one in self.owned
        ]

    # -- durables

    def _consumer(self, method: str, subject: str, name: str, rest: list[str], asked: dict[str, Any]) -> HttpResponse:
        if method == "PUT":
            return self._put(subject, name, asked)
        durable = self.durables.get(name)
        if durable is None:
            return _error(404, "unknown_durable")
        match method, rest:
            case "GET", []:
                return _json(200, self._shape_of(subject, name))
            case "DELETE", []:
                del self.durables[name]
                return _json(200, {"deleted": True})
            case "POST", ["lease" | "extend" | "nack" as act]:
                if durable.mode != "shared":
                    return _error(409, "mode_mismatch")
                if act == "lease":
                    return self._lease(subject, durable, asked)
                if _lost(durable, asked):
                    return _error(409, "lease_lost")
                return self._nack(durable, asked) if act == "nack" else _json(200, {"expires_at": 0.0})
            case "POST", ["ack"]:
                return self._ack(durable, asked)
            case "POST", ["sessions"]:
                if durable.mode != "ordered":
                    return _error(409, "mode_mismatch")
                durable.epoch += 1
                durable.epochs[asked["session_id"]] = durable.epoch
                return _json(201, self._session(durable, asked["session_id"]))
            case "POST", ["sessions", session, "heartbeat"]:
                if problem := durable.session_problem(session, asked["epoch"]):
                    return _error(409, problem)
                return _json(200, self._session(durable, session))
            case "DELETE", ["sessions", session]:
                if problem := durable.session_problem(session, int(asked["epoch"])):
                    return _error(409, problem)
                del durable.epochs[session]
                return _json(200, {"deleted": True})
        raise AssertionError(f"{method} {rest}")

    def _put(self, subject: str, name: str, asked: dict[str, Any]) -> HttpResponse:
        target = self._position(subject, asked["seek"]) if "seek" in asked else None
        if target is not None and target > len(self.messages):
            return _error(409, "beyond_end")
        durable, made = self.durables.get(name), False
        if durable is None and set(asked) == {"seek"}:
            return _error(404, "unknown_durable")
        if durable is None:
            durable, made = Durable(asked.get("mode", "ordered"), self._position(subject, asked.get("start", 1))), True
            self.durables[name] = durable
        elif asked.get("mode", durable.mode) != durable.mode:
            return _error(409, "mode_mismatch")
        durable.filter = asked.get("filter", durable.filter)
        durable.max_deliver = asked.get("max_deliver", durable.max_deliver)
        if target is not None:
            durable.move(target)
        return _json(201 if made else 200, self._shape_of(subject, name))

    def _position(self, subject: str, start: int | str) -> int:
        words = {"first": 0, "last": max(self._latest(subject) - 1, 0), "new": len(self.messages)}
        return words[start] if start in words else max(int(start), 1) - 1

    def _shape_of(self, subject: str, name: str) -> dict[str, Any]:
        durable = self.durables[name]
        mine = {number for number, message in enumerate(self.messages, 1) if message.subject == subject}
        lag = len([number for number in mine - durable.done if number > durable.position])
        return {
            "durable": name,
            "subject": subject,
            "mode": durable.mode,
            "last_sequence": str(durable.position),  # as large ones come
            "latest_sequence": max(mine, default=0),
            "lag": lag,
            "partitions": [{"partition": 0, "position": durable.position, "lag": lag}],
            "created_at": 1_700_000_000,
            **({"max_deliver": durable.max_deliver} if durable.mode == "shared" else {}),
            **({"filter": durable.filter} if durable.filter else {}),
        }

    def _session(self, durable: Durable, name: str) -> dict[str, Any]:
        return {"session_id": name, "epoch": durable.epochs[name], "ttl": 30, "partitions": self._assigned(durable)}

    def _lease(self, subject: str, durable: Durable, asked: dict[str, Any]) -> HttpResponse:
        free = [
            number
            for number, message in enumerate(self.messages, 1)
            if message.subject == subject
            and (number in durable.waiting or (number > durable.position and number not in durable.tries))
            and _fits(message.meta.get("headers", {}), durable.filter)
        ][: asked.get("limit", 1)]
        if not free:
            return _json(200, {"messages": []})
        self._leases += 1
        lease_id = f"lease-{self._leases}"
        messages = []
        for number in free:
            durable.leased[number] = lease_id
            durable.waiting.discard(number)
            durable.tries[number] = durable.tries.get(number, 0) + 1
            messages.append({**self._message(number), "deliveries": durable.tries[number]})
        return _json(200, {"lease_id": lease_id, "expires_at": 0.0, "messages": messages})

    def _nack(self, durable: Durable, asked: dict[str, Any]) -> HttpResponse:
        self.nacks.append(asked)
        dead, untried = 0, asked.get("untried", False)
        for sequence in map(int, asked["sequences"]):
            del durable.leased[sequence]
            durable.tries[sequence] -= untried
            if not untried and 0 < durable.max_deliver <= durable.tries[sequence]:
                durable.done.add(sequence)
                self._give_up(sequence)
                dead += 1
            else:
                durable.waiting.add(sequence)
        return _json(200, {"nacked": len(asked["sequences"]), "dead_lettered": dead})

    def _give_up(self, sequence: int) -> None:
        letter = self.messages[sequence - 1]
        headers = {**letter.meta.get("headers", {}), "mts-dlq-sequence": str(sequence)}
        meta = {**letter.meta, "headers": headers}
        self.packs.append([self._store_message(f"{letter.subject}.dlq", letter.data, meta)])

    def _ack(self, durable: Durable, asked: dict[str, Any]) -> HttpResponse:
        if ("lease_id" in asked) != (durable.mode == "shared"):
            return _error(409, "mode_mismatch")
        if "lease_id" in asked:
            if _lost(durable, asked):
                return _error(409, "lease_lost")
            for sequence in map(int, asked["sequences"]):
                del durable.leased[sequence]
                durable.done.add(sequence)
            self.acks.append(asked)
            return _json(200, {"acked": len(asked["sequences"])})
        if problem := self._why_not(durable, asked):
            return _error(409, problem)
        if asked.get("fence", durable.fence) != durable.fence:
            return _error(409, "position_moved")
        if "session_id" in asked:
            for lane in asked["partitions"]:
                before = durable.acked.get(lane["partition"], 0)
                durable.acked[lane["partition"]] = max(before, int(lane["sequence"]))
            if set(durable.acked) == {0} == set(self.owned):
                durable.position = max(durable.position, durable.acked[0])
        else:
            durable.position = max(durable.position, int(asked["sequence"]))
        self.acks.append(asked)
        return _json(200, {"last_sequence": durable.position})

    def _why_not(self, durable: Durable, asked: dict[str, Any]) -> str | None:
        lanes = asked.get("partitions", [])
        if "session_id" in asked:
            if problem := durable.session_problem(asked["session_id"], asked["epoch"]):
                return problem
            if any(lane["partition"] not in self.owned for lane in lanes):
                return "partition_lost"
            if any(lane["fence"] != durable.fence for lane in lanes):
                return "position_moved"
        elif durable.epochs:
            return "sessions_active"
        beyond = any(int(one["sequence"]) > len(self.messages) for one in lanes or [asked])
        return "beyond_end" if beyond else None


def _lost(durable: Durable, asked: dict[str, Any]) -> bool:
    """All of them or none."""
    return any(durable.leased.get(int(sequence)) != asked["lease_id"] for sequence in asked["sequences"])


def _found(body: bytes) -> object:
    page = msgspec.json.decode(body)
    return page.get("messages") or page.get("extents")


def _waits(url: str, body: Body) -> bool:
    if "/subscribe" in url:
        return "wait=0&" not in url + "&"
    return url.endswith("/lease") and isinstance(body, bytes) and msgspec.json.decode(body).get("wait", 0) > 0


def _conditions(text: str | None) -> list[dict[str, str]]:
    return [{"header": part.split("=")[0], "equals": part.split("=")[1]} for part in (text or "").split(",") if part]


def _fits(headers: Mapping[str, str], conditions: list[dict[str, str]]) -> bool:
    return all(headers.get(one["header"]) == one["equals"] for one in conditions)
