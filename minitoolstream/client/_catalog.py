"""The content catalog: pins, batches and peers, for asyncio and for ordinary code."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from minitoolstream.api import schema_catalog as schema
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._transport import Transport
from minitoolstream.client._upload_calls import JSON
from minitoolstream.domain.cid import read_cid

_BASE = "/v1/catalog"
_UNTIL_DONE = 3600.0
"""Seconds: what looks at all contents takes as long as there are many."""
_T = TypeVar("_T")


class AsyncCatalog:
    """What is pinned, and where its copies are.

    Example: `await client.catalog.pin(sequence=42, rf=2, name="the contract")`
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def pin(
        self,
        cid: str | None = None,
        *,
        sequence: int | None = None,
        rf: int | None = None,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        zones: Sequence[str] | None = None,
        expires_at: float | str | None = None,
        operation_id: str | None = None,
    ) -> schema.PinShape:
        """Keep `rf` copies of a content, or of a message's payload. Pinned already, it is changed to this."""
        body = {
            "cid": cid,
            "sequence": sequence,
            "rf": rf,
            "name": name,
            "tags": tags and list(tags),
            "metadata": metadata and dict(metadata),
            "zones": zones and list(zones),
            "expires_at": expires_at,
            "operation_id": operation_id,
        }
        return await self._send("POST", "/pins", schema.PinShape, body)

    async def get(self, cid: str) -> schema.PinShape:
        """A pin and where its copies are; an error `not_found` when it is not pinned."""
        return await self._get(f"/pins/{read_cid(cid)}", schema.PinShape, {})

    async def pins(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        owner: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> schema.Pins:
        """A page of pins, the newest first; its `next` is the next page's `cursor`."""
        query = {"status": status, "name": name, "tag": tag, "owner": owner, "limit": limit, "cursor": cursor}
        return await self._get("/pins", schema.Pins, query)

    async def update(self, cid: str, *, version: int | None = None, **changes: Any) -> schema.PinShape:
        """Change `rf`, `name`, `tags`, `metadata`, `zones`, `priority` or `expires_at`. With `version`, an error
        `version_conflict` when somebody else was first."""
        # Sent again behind a lost answer, it is known as the same change: not as one that somebody else has made.
        body = {"version": version, "operation_id": uuid.uuid4().hex, **changes}
        return await self._send("PUT", f"/pins/{read_cid(cid)}", schema.PinShape, body)

    async def unpin(self, cid: str, *, version: int | None = None) -> None:
        """Its copies go when nobody else holds it."""
        query = {"version": version, "operation_id": uuid.uuid4().hex}
        await self._transport.call("DELETE", f"{_BASE}/pins/{read_cid(cid)}", schema.Unpinned, query=query)

    async def start_batch(
        self, kind: str, cids: Sequence[str], *, rf: int | None = None, operation_id: str | None = None
    ) -> schema.BatchShape:
        """`pin` or `unpin` up to 100,000 contents."""
        body = {"kind": kind, "cids": list(cids), "rf": rf, "operation_id": operation_id}
        return await self._send("POST", "/batches", schema.BatchShape, body, repeatable=operation_id is not None)

    async def batch(self, batch_id: str) -> schema.BatchShape:
        """How far a batch is."""
        return await self._get(f"/batches/{batch_id}", schema.BatchShape, {})

    async def batch_items(self, batch_id: str, *, after: int | None = None, limit: int = 100) -> schema.BatchItems:
        """What became of each of its contents."""
        return await self._get(f"/batches/{batch_id}/items", schema.BatchItems, {"after": after, "limit": limit})

    async def hold(self, subject: str, digests: Mapping[int, str]) -> int:
        """Tell the sha256 of messages that came without; how many of them hold their contents now."""
        body = {"subject": subject, "digests": {str(sequence): digest for sequence, digest in digests.items()}}
        return (await self._send("POST", "/contents", schema.Held, body)).held

    async def peers(self) -> list[schema.PeerShape]:
        """The object stores that hold copies."""
        return (await self._get("/peers", schema.Peers, {})).peers

    async def stats(self) -> schema.CatalogStats:
        """Counters, and how pins are spread."""
        return await self._get("/stats", schema.CatalogStats, {})

    async def reconcile(self) -> schema.CopiesSettled:
        """Do now what the host does by the clock."""
        return await self._send("POST", "/reconcile", schema.CopiesSettled, {}, timeout=_UNTIL_DONE)

    async def check(self, *, deep: bool = False, mend: bool = False) -> schema.Checked:
        """Compare rows with each other, and with `deep` with what peers have."""
        return await self._send("POST", "/check", schema.Checked, {"deep": deep, "mend": mend}, timeout=_UNTIL_DONE)

    async def _get(self, path: str, answer: type[_T], query: dict[str, Any]) -> _T:
        return await self._transport.call("GET", _BASE + path, answer, query=query)

    async def _send(
        self,
        method: str,
        path: str,
        answer: type[_T],
        body: dict[str, Any],
        *,
        repeatable: bool = True,
        timeout: float | None = None,
    ) -> _T:
        given = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
        return await self._transport.call(
            method, _BASE + path, answer, body=given, headers=JSON, repeatable=repeatable, timeout=timeout
        )


class Catalog:
    """The same for ordinary code.

    Example: `client.catalog.pin(sequence=42, rf=2, name="the contract")`
    """

    def __init__(self, thread: LoopThread, catalog: AsyncCatalog) -> None:
        self._thread = thread
        self._catalog = catalog

    @same_arguments(AsyncCatalog.pin)
    def pin(self, *args: Any, **options: Any) -> schema.PinShape:
        """Keep copies of a content, see `AsyncCatalog.pin`."""
        return self._run(self._catalog.pin(*args, **options))

    def get(self, cid: str) -> schema.PinShape:
        """A pin and where its copies are; an error `not_found` when it is not pinned."""
        return self._run(self._catalog.get(cid))

    @same_arguments(AsyncCatalog.pins)
    def pins(self, *args: Any, **options: Any) -> schema.Pins:
        """A page of pins, see `AsyncCatalog.pins`."""
        return self._run(self._catalog.pins(*args, **options))

    def update(self, cid: str, *, version: int | None = None, **changes: Any) -> schema.PinShape:
        """Change a pin, see `AsyncCatalog.update`."""
        return self._run(self._catalog.update(cid, version=version, **changes))

    def unpin(self, cid: str, *, version: int | None = None) -> None:
        """Its copies go when nobody else holds it."""
        self._run(self._catalog.unpin(cid, version=version))

    @same_arguments(AsyncCatalog.start_batch)
    def start_batch(self, *args: Any, **options: Any) -> schema.BatchShape:
        """`pin` or `unpin` many, see `AsyncCatalog.start_batch`."""
        return self._run(self._catalog.start_batch(*args, **options))

    def batch(self, batch_id: str) -> schema.BatchShape:
        """How far a batch is."""
        return self._run(self._catalog.batch(batch_id))

    def batch_items(self, batch_id: str, *, after: int | None = None, limit: int = 100) -> schema.BatchItems:
        """What became of each of its contents."""
        return self._run(self._catalog.batch_items(batch_id, after=after, limit=limit))

    def hold(self, subject: str, digests: Mapping[int, str]) -> int:
        """Tell the sha256 of messages that came without; how many of them hold their contents now."""
        return self._run(self._catalog.hold(subject, digests))

    def peers(self) -> list[schema.PeerShape]:
        """The object stores that hold copies."""
        return self._run(self._catalog.peers())

    def stats(self) -> schema.CatalogStats:
        """Counters, and how pins are spread."""
        return self._run(self._catalog.stats())

    def reconcile(self) -> schema.CopiesSettled:
        """Do now what the host does by the clock."""
        return self._run(self._catalog.reconcile())

    def check(self, *, deep: bool = False, mend: bool = False) -> schema.Checked:
        """Compare rows with each other, and with `deep` with what peers have."""
        return self._run(self._catalog.check(deep=deep, mend=mend))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._thread.run(work)
