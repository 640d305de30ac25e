"""Tickets: where and how a producer may put its payload, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MAX_PARTS, MIB, PARTS_PER_PAGE
from minitoolstream.domain.upload import Receipt, Upload, UploadSpec
from minitoolstream.ports import NewUpload, SignedRequest, StoredPart
from minitoolstream.services.commit_uploads import commit_found
from minitoolstream.services.core import Core
from minitoolstream.services.signature_life import within_session

_LONGEST_SIGNATURE = 7 * 24 * 3600
_LONGEST_METADATA = 1024
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class SignedPart:
    number: int
    size: int
    request: SignedRequest


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request that stores the payload, or the first page of its parts."""

    upload: Upload
    request: SignedRequest | None = None
    parts: list[SignedPart] | None = None


async def issue_tickets(core: Core, subject: str, specs: Sequence[UploadSpec]) -> list[Ticket | Receipt]:
    """A ticket for each announcement, all or none; a receipt where the producer's seqno is stored already."""
    part_size = core.settings["uploads.part_size"]
    sized = [
        spec if spec.size <= part_size else replace(spec, part_size=part_size_for(spec.size, part_size))
        for spec in specs
    ]
    created = await core.metadata.create_uploads(subject, sized)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def of_parts(upload: Upload) -> Ticket | Receipt:
        async with limit:
            return await _multipart_ticket(core, upload, urls=max(1, PARTS_PER_PAGE // len(created)))

    # Only what the store must be asked for is worth a task.
    large = [new.upload for new in created if new.upload is not None and new.upload.part_size is not None]
    begun = iter(await asyncio.gather(*map(of_parts, large)) if large else ())
    return [_at_once(core, new) or next(begun) for new in created]


def _at_once(core: Core, new: NewUpload) -> Ticket | Receipt | None:
    """The answer that needs no store; None for a payload in parts."""
    if new.upload is None:
        return new.receipt
    if new.upload.part_size is not None:
        return None
    upload = within_session(core, new.upload)
    return Ticket(upload, request=_sign_put(core, upload))


def part_size_for(size: int, part_size: int) -> int | None:
    """None for a single PUT; else the given part size, or more in whole MiB where 10,000 parts would not do."""
    if size <= part_size:
        return None
    if size <= part_size * MAX_PARTS:
        return part_size
    smallest = -(-size // MAX_PARTS)
    return -(-smallest // MIB) * MIB


def part_count(upload: Upload) -> int:
    assert upload.part_size is not None
    return -(-upload.size // upload.part_size)


def size_of_part(upload: Upload, number: int) -> int:
    assert upload.part_size is not None
    return min(upload.part_size, upload.size - (number - 1) * upload.part_size)


async def _multipart_ticket(core: Core, upload: Upload, urls: int) -> Ticket | Receipt:
    if upload.multipart_id is None:
        upload = await ensure_multipart(core, upload)
    else:
        living = await living_multipart(core, upload)
        if isinstance(living, Receipt):
            return living
        upload, _ = living
    upload = within_session(core, upload)
    numbers = range(1, min(part_count(upload), urls) + 1)
    return Ticket(upload, parts=[sign_part(core, upload, number) for number in numbers])


async def ensure_multipart(core: Core, upload: Upload) -> Upload:
    """Begin the multipart upload unless that has happened; when two do it at once, the first counts."""
    if upload.multipart_id is not None:
        return upload
    multipart_id = await core.payloads.create_multipart(
        upload.object_name, content_type=upload.content_type, metadata=recovery_metadata(upload)
    )
    known = await core.metadata.set_multipart(upload.id, multipart_id)
    if known.multipart_id != multipart_id:
        await core.payloads.abort_multipart(upload.object_name, multipart_id)
    return known


async def living_multipart(core: Core, upload: Upload) -> tuple[Upload, list[StoredPart]] | Receipt:
    """The upload, with a multipart that the store knows, and the parts that have arrived. Or the receipt: where the
    parts were joined and nobody lived to commit the object, that happens now, since no part could be sent any more."""
    upload = await ensure_multipart(core, upload)
    assert upload.multipart_id is not None
    parts = await core.payloads.list_parts(upload.object_name, upload.multipart_id)
    if parts is not None:
        return upload, parts
    if stored := await core.payloads.find(upload.object_name):
        return await commit_found(core, upload, stored)
    return await ensure_multipart(core, await forget_multipart(core, upload, upload.multipart_id)), []


async def forget_multipart(core: Core, upload: Upload, lost: str) -> Upload:
    """The store refuses whatever is asked for it: one that dies while it joins parts may keep neither them nor the
    object. Parts are signed for another from now on."""
    known = await core.metadata.set_multipart(upload.id, None, lost)
    await core.payloads.abort_multipart(upload.object_name, lost)
    return known


def sign_part(core: Core, upload: Upload, number: int, md5: str | None = None) -> SignedPart:
    assert upload.multipart_id is not None
    size = size_of_part(upload, number)
    request = core.signer.put_part(
        upload.object_name,
        multipart_id=upload.multipart_id,
        number=number,
        size=size,
        expires_in=_seconds_left(upload),
        md5=md5,
    )
    return SignedPart(number, size, request)


def _sign_put(core: Core, upload: Upload) -> SignedRequest:
    return core.signer.put(
        upload.object_name,
        size=upload.size,
        content_type=upload.content_type,
        expires_in=_seconds_left(upload),
        sha256=upload.sha256,
        metadata=recovery_metadata(upload),
    )


def _seconds_left(upload: Upload) -> int:
    left = upload.expires_at - int(time.time())
    if left <= 0:
        raise MtsError("upload_final", "this ticket has expired; ask for a new one", {"upload_id": upload.id})
    return min(left, _LONGEST_SIGNATURE)


def recovery_metadata(upload: Upload) -> dict[str, str]:
    """What a rebuild from the bucket alone needs to know of a named producer's payload. Stores take 2 KiB of
    metadata at most, so a longer producer id is left to the journal."""
    if upload.producer_id is None:
        return {}
    metadata = {"mts-seqno": str(upload.seqno)}
    producer = quote(upload.producer_id, safe="")
    if len(producer) <= _LONGEST_METADATA:
        metadata["mts-producer"] = producer
    return metadata
