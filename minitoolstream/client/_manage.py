"""Durables, subjects and dead letters: what an operator does with them, for asyncio."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._codec import expanded
from minitoolstream.client._consumer_calls import ConsumerCalls
from minitoolstream.client._consumer_types import Consumer
from minitoolstream.client._deletion import purge_subject
from minitoolstream.client._deletion_types import Deletion
from minitoolstream.client._subject_types import SubjectDetails, SubjectInfo
from minitoolstream.client._transport import Transport, plain
from minitoolstream.client._types import Page, Start, page_of, start_word
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.consumer import Mode
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import check_subject

_PAGE = 1000
_AT_ONCE = 500


class AsyncConsumers:
    """The durables of subjects.

    Example: `await client.consumers.seek("orders", "billing", "first")`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, subject: str) -> builtins.list[Consumer]:
        """All durables of a subject, in the order of their names."""
        return await ConsumerCalls(self._transport, subject).all()

    async def get(self, subject: str, durable: str) -> Consumer:
        """Its position, lag and settings; an error `unknown_durable` when there is none."""
        return await ConsumerCalls(self._transport, subject).get(durable)

    async def put(
        self,
        subject: str,
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
        """Make a durable, or change its settings; what is not given stays, or gets its default.

        `mode` is fixed, and `start` has a meaning, only when it is made. Nothing expires before an `important`
        one has acked it. Of a shared one: seconds until an unacked message comes again (`ack_wait`), how often it
        does (`max_deliver`), and the subject it goes to then (`dead_letter`).

        Example: `await client.consumers.put("orders", "billing", mode="shared", max_deliver=3)`
        """
        return await ConsumerCalls(self._transport, subject).put(
            durable,
            mode=mode,
            start=start,
            filter=filter,
            important=important,
            max_deliver=max_deliver,
            ack_wait=ack_wait,
            dead_letter=dead_letter,
        )

    async def seek(self, subject: str, durable: str, to: Start) -> Consumer:
        """Move its position, so that `to` is read next; readers start again there."""
        return await ConsumerCalls(self._transport, subject).seek(durable, to)

    async def delete(self, subject: str, durable: str) -> None:
        """Forget it and its position; messages stay."""
        await ConsumerCalls(self._transport, subject).delete(durable)


class AsyncSubjects:
    """Subjects and their settings.

    Example: `await client.subjects.put("orders", partitions=4, codecs=["raw", "zstd"])`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, prefix: str = "") -> AsyncGenerator[SubjectInfo, None]:
        """All subjects whose names begin with `prefix`, in the order of their names.

        Example: `[info.subject async for info in client.subjects.list("orders.")]`
        """
        after: str | None = None
        while True:
            page, after = await self._page(prefix, after)
            for info in page:
                yield info
            if after is None:
                return

    async def _page(self, prefix: str, after: str | None) -> tuple[Sequence[SubjectInfo], str | None]:
        query = {"prefix": prefix or None, "after": after, "limit": _PAGE}
        response = await self._transport.send("GET", "/v1/subjects", query=query)
        page = plain(response, _Subjects)
        return page.subjects, page.next

    async def get(self, subject: str) -> SubjectDetails:
        """Its partitions, settings and counters; an error `unknown_subject` when there is none."""
        response = await self._transport.send("GET", _path(subject))
        return plain(response, SubjectDetails)

    async def put(
        self,
        subject: str,
        *,
        partitions: int | None = None,
        codecs: Sequence[str] | None = None,
        quota: Mapping[str, int | None] | None = None,
        autopartitioning: Mapping[str, Any] | None = None,
        ttl: int | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        copies: Mapping[str, Any] | None = None,
    ) -> SubjectDetails:
        """Make a subject, or change its settings; what is not given stays, or gets its default.

        `partitions` can only grow. `quota`: the limits `messages`, `bytes`, `rate` (messages a second); None lifts one.
        `autopartitioning`: `mode` (disabled, up, paused), `max_partitions`, `write_speed`, `utilization`,
        `stabilization`. `ttl`: seconds that messages stay; `max_messages`, `max_bytes`: how many of the newest stay; 0
        takes one back. `copies`: `rf` and `zones` of the copies that the content catalog keeps; an empty one takes it
        back.

        Example: `await client.subjects.put("orders", quota={"rate": 1000}, ttl=7 * 86400)`
        """
        given = {"partitions": partitions, "codecs": codecs, "quota": quota, "autopartitioning": autopartitioning}
        kept = {"ttl": ttl, "max_messages": max_messages, "max_bytes": max_bytes}
        wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        wanted |= {name: value or None for name, value in kept.items() if value is not None}
        if copies is not None:
            wanted["copies"] = dict(copies) or None
        body = msgspec.json.encode(wanted)
        response = await self._transport.send("PUT", _path(subject), body=body, headers=JSON)
        return plain(response, SubjectDetails)

    async def purge(self, subject: str, reason: str = "") -> Deletion:
        """Delete all messages of a subject for good; it stays, with its durables and producers. While the answer is
        not `done`, call again to go on.

        Example: `await client.subjects.purge("orders", "the customer left")`
        """
        return await purge_subject(self._transport, _path(subject, "/purge"), reason)

    async def delete(self, subject: str) -> None:
        """Delete a subject with all its messages, payloads and durables. There is no way back."""
        await self._transport.send("DELETE", _path(subject))


class AsyncDeadLetters:
    """Messages that a shared durable gave up on; `subject` is the one they came from.

    Example: `await client.dead_letters.replay("orders")`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fetch(self, subject: str, *, start: Start = 1, limit: int = 100) -> Page:
        """A page of them; their headers `mts-dlq-...` tell where they came from, why, and how often they were tried."""
        query = {"start": start_word(start), "limit": limit}
        answer = await self._transport.call("GET", _path(subject, "/dead-letters"), schema.Page, query=query)
        page = page_of(answer)
        return Page(tuple(await expanded(page.messages)), page.next_sequence, page.latest_sequence)

    async def replay(self, subject: str, sequences: Sequence[int] | None = None) -> int:
        """Publish them, or those of `sequences`, to their subject again; how many."""
        path = _path(subject, "/dead-letters/replay")
        if sequences is None:
            return await self._all("POST", path, "replayed", b"{}")
        replayed = 0
        for start in range(0, len(sequences), _AT_ONCE):
            some = [wire_number(sequence) for sequence in sequences[start : start + _AT_ONCE]]
            replayed += await self._some("POST", path, "replayed", msgspec.json.encode({"sequences": some}))
        return replayed

    async def purge(self, subject: str) -> int:
        """Delete them; how many."""
        return await self._all("DELETE", _path(subject, "/dead-letters"), "purged", b"")

    async def _all(self, method: str, path: str, count: str, body: bytes) -> int:
        done, more = 0, True
        while more:
            answer = await self._call(method, path, body)
            done += int(answer[count])
            more = bool(answer["more"])
        return done

    async def _some(self, method: str, path: str, count: str, body: bytes) -> int:
        return int((await self._call(method, path, body))[count])

    async def _call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        # A dead letter that is replayed or purged is gone: the same call again does nothing to it.
        return await self._transport.call(method, path, dict[str, Any], body=body, headers=JSON if body else None)


@dataclass(frozen=True, slots=True)
class _Subjects:
    subjects: tuple[SubjectInfo, ...] = ()
    next: str | None = None


def _path(subject: str, rest: str = "") -> str:
    return f"/v1/subjects/{check_subject(subject)}{rest}"
