"""Extents as the API gives them, taken apart into messages."""

from __future__ import annotations

from minitoolstream.api import schema
from minitoolstream.client._types import Message
from minitoolstream.domain.pack import payloads_of


def messages_of(extent: schema.Extent, body: bytes | None) -> list[Message]:
    """The messages of an extent, with their payloads when `body`, the extent's byte range, is given.

    Sequence and offset of an extent are those of its last message, as in the metadata store.
    """
    payloads = _payloads(extent, body)
    first_sequence = int(extent.sequence) - extent.count + 1
    first_offset = int(extent.offset) - extent.count + 1
    alone = extent.count == 1
    own = {entry.index: entry for entry in extent.own}
    shared = schema.OwnMetadata(0)
    return [
        Message(
            sequence=first_sequence + index,
            subject=extent.subject,
            partition=extent.partition,
            offset=first_offset + index,
            create_at=extent.create_at,
            headers=_or(own.get(index, shared).headers, extent.headers),
            size=extent.sizes[index],
            content_type=own.get(index, shared).content_type or extent.content_type,
            object_name=extent.object_name,
            codec=extent.codec,
            sha256=extent.sha256 if alone else None,
            url=extent.url if alone and not extent.framed else None,
            data=payloads[index],
            unverified=extent.unverified,
            payload_missing=extent.payload_missing,
        )
        for index in range(extent.count)
    ]


def _or(own: dict[str, str] | None, shared: dict[str, str]) -> dict[str, str]:
    """A message whose own headers are none at all differs from one that has the shared ones."""
    return shared if own is None else own


def _payloads(extent: schema.Extent, body: bytes | None) -> list[bytes] | list[None]:
    if body is None:
        return [None] * extent.count
    if not extent.framed:
        return [body]
    return payloads_of(body, extent.sizes)
