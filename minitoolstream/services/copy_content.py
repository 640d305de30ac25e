"""One copy of a content to a peer, from whoever has it: whole or in parts, its digest checked on the way."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from minitoolstream.domain.cid import Cid
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.pin import Pin
from minitoolstream.ports import PayloadStore
from minitoolstream.services.core import Core
from minitoolstream.services.pin_holders import refs_of

T = TypeVar("T")
PREFIX = "cid/"
"""Where copies lie in a peer's bucket: `cid/<content id>`."""
PART = 16 * MIB
_TYPE = "application/octet-stream"


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
    for peer in held:
        yield Source(f"peer {peer}", core.peers.payloads(peer), key_of(cid))
    for ref in await refs_of(core, cid):
        if ref["object_name"]:
            yield Source("the messages' bucket", core.payloads, ref["object_name"], ref["first_byte"] or 0, ref["size"])
    for peer in known:
        if peer not in held:
            yield Source(f"peer {peer}", core.peers.payloads(peer), key_of(cid))


async def copy_content(cid: Cid, target: PayloadStore, found: AsyncIterator[Source]) -> int:
    """Its size. The first source that has it whole is used; MtsError of the last one when none has."""
    problem = MtsError("payload_missing", "no store has its bytes")
    key = key_of(cid)
    async for source in found:
        if source.store is target:
            continue
        try:
            return await _copy(cid, target, key, source)
        except MtsError as error:
            if error.details.get("at_target"):
                raise
            if error.code != "payload_missing" or source.size is not None:
                problem = MtsError(error.code, f"{source.name}: {error.message}", error.details)
    # Looked at last: it costs a request, and most have it from elsewhere.
    size = await _there_already(cid, target, key)
    if size is None:
        raise problem
    return size


async def _there_already(cid: Cid, target: PayloadStore, key: str) -> int | None:
    """The size of what the target has under this name, if that is the content."""
    there = await at_target(target.find(key))
    if there is None:
        return None
    digest = hashlib.sha256()
    async for _, body in _parts(Source("", target, key), b"", there.size):
        digest.update(body)
    _check(cid, digest.digest())
    return there.size


async def _copy(cid: Cid, target: PayloadStore, key: str, source: Source) -> int:
    begin, size = await _begin(source)
    if size <= PART:
        _check(cid, hashlib.sha256(begin).digest())
        await at_target(_put(target, key, begin))
        return size
    there = await at_target(target.find(key))
    if there is None or there.size != size:
        await _copy_parts(cid, target, source, begin, size)
    return size


async def _begin(source: Source) -> tuple[bytes, int]:
    """The first part, which is most often the whole, and the size of all."""
    if source.size is None:
        return await source.store.get_begin(source.key, PART)
    last = source.first + min(source.size, PART) - 1
    return await source.store.get_range(source.key, source.first, last) if source.size else b"", source.size


async def _put(target: PayloadStore, key: str, body: bytes) -> None:
    """What is there already is the same content: only whole, checked ones get this name."""
    try:
        await target.put_new(key, body, content_type=_TYPE)
    except MtsError as error:
        if error.code != "already_exists":
            raise
        there = await target.find(key)
        if there is None or there.size != len(body):
            raise MtsError("size_mismatch", "the peer has something else under this name") from None


async def _copy_parts(cid: Cid, target: PayloadStore, source: Source, begin: bytes, size: int) -> None:
    key = key_of(cid)
    multipart = await at_target(target.create_multipart(key, content_type=_TYPE, metadata={}))
    try:
        parts, digest = [], hashlib.sha256()
        async for number, body in _parts(source, begin, size):
            digest.update(body)
            parts.append(await at_target(target.put_part(key, multipart, number, body)))
        _check(cid, digest.digest())
        await at_target(target.complete_multipart(key, multipart, parts))
    except BaseException:
        await target.abort_multipart(key, multipart)
        raise


async def _parts(source: Source, begin: bytes, size: int) -> AsyncIterator[tuple[int, bytes]]:
    """`begin`: the first of them, where it was read already."""
    for number, at in enumerate(range(0, size, PART), 1):
        first, last = source.first + at, source.first + min(at + PART, size) - 1
        yield number, begin if at < len(begin) else await source.store.get_range(source.key, first, last)


def _check(cid: Cid, digest: bytes) -> None:
    if digest != cid.digest:
        raise MtsError("checksum_mismatch", "its bytes are not those that its id names")


async def at_target(work: Awaitable[T]) -> T:
    """What fails at the target no other source mends."""
    try:
        return await work
    except MtsError as error:
        raise MtsError(error.code, error.message, {**error.details, "at_target": True}) from error
