"""One copy of a content to a peer, from whoever has it: whole or in parts, its digest checked on the way."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from minitoolstream.domain.cid import Cid
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import messages_of
from minitoolstream.domain.pin import Pin
from minitoolstream.ports import PayloadStore, StoredPart
from minitoolstream.ports.catalog import Row
from minitoolstream.services.core import Core
from minitoolstream.services.patience import Patience
from minitoolstream.services.pin_holders import refs_of
from minitoolstream.services.read_ahead import part_length, read_ahead

T = TypeVar("T")
PREFIX = "cid/"
"""Where copies lie in a peer's bucket: `cid/<content id>`."""
PART = 8 * MIB
"""What is read at once; contents of more go in parts."""
_MESSAGES_ASKED = 16
_TYPE = "application/octet-stream"


def takes_long(size: int | None) -> bool:
    """One that goes in a single request is most often there before anybody looks."""
    return size is None or size > PART


@dataclass(frozen=True, slots=True)
class Source:
    """Bytes of a content. `size` is None where it must be asked for."""

    name: str
    store: PayloadStore
    key: str
    first: int = 0
    size: int | None = None


def key_of(cid: Cid) -> str:
    return f"{PREFIX}{cid}"


async def sources(core: Core, cid: Cid, pin: Pin | None, actual: Iterable[str]) -> AsyncIterator[Source]:
    """Where its bytes may be: the message of which it was made, peers that have it, messages that hold it, and then
    peers that may have it. What costs a look comes late."""
    if pin is not None and pin.source is not None:
        first, size, name = pin.source
        yield Source("the messages' bucket", core.payloads, name, first, size)
    known = [peer.id for peer in core.peers.peers()]
    held = [peer for peer in actual if peer in known]
    for source in _at_peers(core, cid, held):
        yield source
    refs = await refs_of(core, cid)
    for ref in refs:
        if ref["object_name"]:
            yield Source("the messages' bucket", core.payloads, ref["object_name"], ref["first_byte"] or 0, ref["size"])
    for source in _at_peers(core, cid, [peer for peer in known if peer not in held]):
        yield source
    async for source in _moved(core, pin, refs):
        yield source


def peer_name(peer: str) -> str:
    return f"peer {peer}"


def _at_peers(core: Core, cid: Cid, peers: Iterable[str]) -> Iterator[Source]:
    for peer in peers:
        with contextlib.suppress(MtsError):  # one without credentials does not hide the next
            yield Source(peer_name(peer), core.peers.payloads(peer), key_of(cid))


async def _moved(core: Core, pin: Pin | None, refs: Sequence[Row]) -> AsyncIterator[Source]:
    """Where messages that hold it are now: compaction moves them, and nobody tells the catalog."""
    named = [int(ref["ref"].removeprefix("message/")) for ref in refs if ref["ref"].startswith("message/")]
    made_of = [pin.message] if pin is not None and pin.message is not None else []
    for sequence in [*made_of, *named][:_MESSAGES_ASKED]:
        extent = await core.metadata.get_message(sequence)
        if extent is not None and not extent.missing and not extent.unverified:
            (placed,) = messages_of(extent)
            message, first = placed
            yield Source("the messages' bucket", core.payloads, message.object_name, first or 0, message.size)


async def copy_content(
    cid: Cid, target: PayloadStore, found: AsyncIterator[Source], in_parts: asyncio.Semaphore, patience: Patience
) -> int:
    """Its size. The first source that has it whole is used; MtsError of the last one when none has. `in_parts`: as
    many large ones are on their way."""
    problem = MtsError("payload_missing", "no store has its bytes")
    key = key_of(cid)
    async for source in found:
        if source.store is target:
            continue
        try:
            patience.check(source.name)
            size = await _copy(cid, target, key, source, in_parts)
            patience.answered(source.name)
            return size
        except MtsError as error:
            if error.details.get("at_target"):
                raise
            patience.failed(source.name, error)
            if error.code != "payload_missing" or source.size is not None:
                problem = MtsError(error.code, f"{source.name}: {error.message}", error.details)
    # Looked at last: it costs a request, and most have it from elsewhere.
    there = await _there_already(cid, target, key)
    if there is None:
        raise problem
    return there


async def _there_already(cid: Cid, target: PayloadStore, key: str) -> int | None:
    """The size of what the target has under this name, if that is the content."""
    there = await at_target(target.find(key))
    if there is None:
        return None
    digest = hashlib.sha256()
    for first in range(0, there.size, PART):
        digest.update(await at_target(target.get_range(key, first, min(first + PART, there.size) - 1)))
    if digest.digest() != cid.digest:
        raise MtsError("checksum_mismatch", f"the peer has other bytes at {key}: remove them", {"at_target": True})
    return there.size


async def _copy(cid: Cid, target: PayloadStore, key: str, source: Source, in_parts: asyncio.Semaphore) -> int:
    size = source.size
    if size is None or size <= PART:
        begin, size = await _begin(source)
        if size <= PART:
            _check(cid, hashlib.sha256(begin).digest())
            await _put(cid, target, key, begin)
            return size
        del begin  # others may be on their way for long
    async with in_parts:
        if await _there_already(cid, target, key) is None:
            await _copy_parts(cid, target, key, source, size)
    return size


async def _begin(source: Source) -> tuple[bytes, int]:
    """The first part, which is most often the whole, and the size of all."""
    if source.size is None:
        return await source.store.get_begin(source.key, PART)
    last = source.first + source.size - 1
    return await source.store.get_range(source.key, source.first, last) if source.size else b"", source.size


async def _put(cid: Cid, target: PayloadStore, key: str, body: bytes) -> None:
    try:
        await at_target(target.put_new(key, body, content_type=_TYPE))
    except MtsError as error:
        if error.code != "already_exists":
            raise
        await _must_be_there(cid, target, key)


async def _must_be_there(cid: Cid, target: PayloadStore, key: str) -> None:
    """Somebody else has made it."""
    if await _there_already(cid, target, key) is None:
        raise unavailable("the peer had it a moment ago, and has it no more", at_target=True)


async def _copy_parts(cid: Cid, target: PayloadStore, key: str, source: Source, size: int) -> None:
    multipart = await at_target(target.create_multipart(key, content_type=_TYPE, metadata={}))
    made = False

    async def read(first: int, last: int) -> bytes:
        return await source.store.get_range(source.key, source.first + first, source.first + last)

    try:
        parts: list[StoredPart] = []
        digest = hashlib.sha256()
        async with contextlib.aclosing(read_ahead(read, size, part_length(size, PART))) as pieces:
            async for body in pieces:
                await asyncio.to_thread(digest.update, body)
                parts.append(await at_target(target.put_part(key, multipart, len(parts) + 1, body)))
                del body  # not three at a time
        _check(cid, digest.digest())
        made = await at_target(target.complete_multipart(key, multipart, parts))
    finally:
        if not made:
            await target.abort_multipart(key, multipart)
    if not made:
        await _must_be_there(cid, target, key)


def _check(cid: Cid, digest: bytes) -> None:
    if digest != cid.digest:
        raise MtsError("checksum_mismatch", "its bytes are not those that its id names")


async def at_target(work: Awaitable[T]) -> T:
    """What fails at the target no other source mends."""
    try:
        return await work
    except MtsError as error:
        raise MtsError(error.code, error.message, {**error.details, "at_target": True}) from error
