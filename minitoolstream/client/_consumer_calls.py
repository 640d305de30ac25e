"""The API's calls about durables and their readers, one method each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._consumer_types import Consumer, filter_shape, start_shape
from minitoolstream.client._entries import Entry, Pack, Payload
from minitoolstream.client._extents import messages_of
from minitoolstream.client._read import Reader
from minitoolstream.client._transport import Transport, decode, plain
from minitoolstream.client._types import Message, Start, message_of
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.checks import check_text
from minitoolstream.domain.consumer import Mode, Session, Share
from minitoolstream.domain.errors import bad_request
from minitoolstream.domain.message import Message as WireMessage
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import check_subject

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Read:
    """A page for a subscriber; without a durable its position is 0 and means nothing."""

    entries: list[Entry]
    next_sequence: int
    latest_sequence: int
    position: int = 0
    fence: int | None = None
    partitions: tuple[Share, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: str
    messages: tuple[tuple[Message, int], ...]


class _ReadAnswer(msgspec.Struct):
    next_sequence: int | str
    latest_sequence: int | str
    messages: list[WireMessage] = []
    extents: list[schema.Extent] = []
    position: int | str = 0
    fence: int | None = None
    partitions: list[dict[str, Any]] | None = None


class _LeaseAnswer(msgspec.Struct):
    lease_id: str | None = None
    messages: list[WireMessage] = []


@dataclass(slots=True)
class _Consumers:
    consumers: list[Consumer] = field(default_factory=list)
    next: str | None = None


class ConsumerCalls:
    """Calls about the durables of one subject. All may be repeated, and are. A lease knows nothing of messages that
    were acked or given back: a repeated call about them is refused as `lease_lost`, with the detail `resent`.
    """

    def __init__(self, transport: Transport, subject: str) -> None:
        self._transport = transport
        self._reader = Reader(transport)
        self._base = f"/v1/subjects/{check_subject(subject)}"

    async def put(
        self,
        durable: str,
        *,
        mode: Mode | None = None,
        start: Start | None = None,
        filter: str | Sequence[str] | None = None,  # noqa: A002
        important: bool | None = None,
        max_deliver: int | None = None,
        ack_wait: int | None = None,
        dead_letter: str | None = None,
    ) -> Consumer:
        settings = {
            "mode": mode,
            "start": None if start is None else start_shape(start),
            "filter": None if filter is None else filter_shape(filter),
            "important": important,
            "max_deliver": max_deliver,
            "ack_wait": ack_wait,
            "dead_letter": dead_letter,
        }
        body = {name: value for name, value in settings.items() if value is not None}
        return await self._json("PUT", self._path(durable), Consumer, body)

    async def seek(self, durable: str, to: Start) -> Consumer:
        return await self._json("PUT", self._path(durable), Consumer, {"seek": start_shape(to)})

    async def get(self, durable: str) -> Consumer:
        return await self._json("GET", self._path(durable), Consumer)

    async def all(self) -> list[Consumer]:
        found: list[Consumer] = []
        after: str | None = None
        while True:
            page = await self._json("GET", f"{self._base}/consumers", _Consumers, query={"after": after, "limit": 1000})
            found += page.consumers
            after = page.next
            if after is None:
                return found

    async def delete(self, durable: str) -> None:
        await self._transport.send("DELETE", self._path(durable))

    # -- reading

    async def read(self, query: Mapping[str, Any], wait: float, *, whole: bool) -> Read:
        """A page, with small payloads; with `whole`, packs come as one, each payload with its pack."""
        form = {"view": "extents"} if whole else {"inline": "true"}
        answer = await self._transport.call(
            "GET",
            f"{self._base}/subscribe",
            _ReadAnswer,
            query={**query, **form, "wait": f"{wait:g}"},
            timeout=wait + 30,
            waits=wait > 0,
        )
        entries = [Entry(message_of(message)) for message in answer.messages]
        for extent in answer.extents:
            pack = Pack(partial(self._reader.load, extent))
            entries += [
                Entry(message, payload=Payload(pack=pack, index=index))
                for index, message in enumerate(messages_of(extent, None))
            ]
        return Read(
            entries,
            int(answer.next_sequence),
            int(answer.latest_sequence),
            int(answer.position),
            answer.fence,
            None if answer.partitions is None else _shares(answer.partitions),
        )

    async def lease(self, durable: str, limit: int, seconds: float, wait: float) -> Lease:
        body = {"limit": limit, "seconds": seconds, "wait": wait, "inline": True}
        response = await self._transport.send(
            "POST",
            self._path(durable, "/lease"),
            body=msgspec.json.encode(body),
            headers=JSON,
            timeout=wait + 30,
            waits=wait > 0,
        )
        answer = decode(response, _LeaseAnswer)
        leased = tuple((message_of(message), message.deliveries) for message in answer.messages)
        return Lease(answer.lease_id or "", leased)

    # -- acks

    async def ack(self, durable: str, body: Mapping[str, Any], transaction_id: str | None = None) -> None:
        more = {} if transaction_id is None else {"transaction_id": transaction_id}
        await self._send(self._path(durable, "/ack"), {**body, **more})

    async def nack(
        self, durable: str, lease_id: str, sequences: Iterable[int], delay: float, *, untried: bool = False
    ) -> None:
        body = {"lease_id": lease_id, "sequences": [wire_number(n) for n in sequences], "delay": delay}
        await self._send(self._path(durable, "/nack"), {**body, **({"untried": True} if untried else {})})

    async def extend(self, durable: str, lease_id: str, seconds: float, sequences: Iterable[int]) -> None:
        body = {"lease_id": lease_id, "seconds": seconds, "sequences": [wire_number(n) for n in sequences]}
        await self._send(self._path(durable, "/extend"), body)

    # -- sessions

    async def join(self, durable: str, session_id: str, ttl: int) -> Session:
        return await self._json(
            "POST", self._path(durable, "/sessions"), Session, {"session_id": session_id, "ttl": ttl}
        )

    async def heartbeat(self, durable: str, session: Session) -> Session:
        path = self._path(durable, f"/sessions/{quote(session.session_id, safe='')}/heartbeat")
        return await self._json("POST", path, Session, {"epoch": session.epoch})

    async def leave(self, durable: str, session: Session) -> None:
        path = self._path(durable, f"/sessions/{quote(session.session_id, safe='')}")
        await self._transport.send("DELETE", path, query={"epoch": session.epoch})

    def _path(self, durable: str, rest: str = "") -> str:
        if not check_text(durable, "durable") or "/" in durable:
            raise bad_request(f"{durable[:80]!r} is not the name of a durable", field="durable")
        return f"{self._base}/consumers/{quote(durable, safe='')}{rest}"

    async def _send(self, path: str, body: Mapping[str, Any]) -> None:
        await self._transport.send("POST", path, body=msgspec.json.encode(body), headers=JSON)

    async def _json(
        self,
        method: str,
        path: str,
        answer: type[_T],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> _T:
        raw = b"" if body is None else msgspec.json.encode(body)
        response = await self._transport.send(
            method, path, query=query, body=raw, headers=JSON if body is not None else None
        )
        return plain(response, answer)


def _shares(partitions: list[dict[str, Any]]) -> tuple[Share, ...]:
    return msgspec.convert(partitions, tuple[Share, ...], strict=False)
