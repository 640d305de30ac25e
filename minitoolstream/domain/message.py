"""Messages and the extents they live in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from minitoolstream.domain.limits import JSON_SAFE_INTEGER
from minitoolstream.domain.pack import FRAME_PREFIX

DEFAULT_CONTENT_TYPE = "application/octet-stream"


def wire_number(value: int) -> int | str:
    """JSON readers hold integers up to 2**53 exactly; larger ones travel as strings."""
    return value if value <= JSON_SAFE_INTEGER else str(value)


class Extent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`count` consecutive messages in one object, as the metadata store keeps them.

    `sequence` and `offset` are those of the last message. `byte_from` is None for a whole, unframed object.
    `own` lists (index, headers, content_type) of messages that differ from what the extent shares. `missing`: its
    payload is not in the bucket.
    """

    sequence: int
    headers: dict[str, str]
    object_name: str
    subject: str
    create_at: int
    partition: int
    offset: int
    count: int
    size: int
    byte_from: int | None = None
    sizes: list[int] | None = None
    own: list[list[Any]] | None = None
    content_type: str | None = None
    sha256: str | None = None
    codec: str | None = None
    unverified: bool | None = None
    missing: bool | None = None

    @property
    def byte_range(self) -> tuple[int, int] | None:
        """First and last byte of all frames together."""
        if self.byte_from is None:
            return None
        return self.byte_from, self.byte_from + self.size + FRAME_PREFIX * self.count - 1


def cut_extent(extent: Extent, first: int, last: int) -> Extent:
    """Its messages with sequences `first` to `last`, of which it must have some, as an extent of their own."""
    start = extent.sequence - extent.count + 1
    begin, end = max(first - start, 0), min(last - start, extent.count - 1) + 1
    if begin == 0 and end == extent.count:
        return extent
    assert 0 <= begin < end, "nothing of it lies there"
    assert extent.sizes is not None
    assert extent.byte_from is not None, "an extent of many messages is framed"
    sizes = extent.sizes[begin:end]
    own = [[entry[0] - begin, *entry[1:]] for entry in extent.own or () if begin <= entry[0] < end]
    return msgspec.structs.replace(
        extent,
        sequence=start + end - 1,
        offset=extent.offset - extent.count + end,
        count=end - begin,
        size=sum(sizes),
        byte_from=extent.byte_from + sum(extent.sizes[:begin]) + FRAME_PREFIX * begin,
        sizes=sizes if len(sizes) > 1 else None,
        own=own or None,
    )


class Message(msgspec.Struct, omit_defaults=True):
    """A message's place and metadata, and a URL for its payload; with `range`, send it as the Range header. With
    `payload_missing` there is no URL: the payload is not in the object store. With
    `fallback_url`, `url` is that of a copy nearer to the reader. `cid`, told of a single message and not in pages: what
    the content catalog calls a payload of which the sha256 is known."""

    sequence: int | str
    subject: str
    partition: int
    offset: int | str
    create_at: int
    headers: dict[str, str]
    size: int
    content_type: str
    object_name: str
    codec: str | None = None
    sha256: str | None = None
    url: str | None = None
    range: str | None = None
    data: str | None = None
    encoding: str | None = None
    unverified: bool = False
    deliveries: int = 0  # how often a leased message was handed out
    payload_missing: bool = False
    fallback_url: str | None = None
    fallback_range: str | None = None
    cid: str | None = None


class Placed(NamedTuple):
    """A message and where its payload bytes are; `first_byte` is None for a whole object."""

    message: Message
    first_byte: int | None


def messages_of(extent: Extent) -> Iterator[Placed]:
    """Every message of an extent, in order."""
    sequence = extent.sequence - extent.count + 1
    offset = extent.offset - extent.count + 1
    sizes = extent.sizes or [extent.size]
    own = {entry[0]: entry for entry in extent.own or ()}
    shared_type = extent.content_type or DEFAULT_CONTENT_TYPE
    byte = extent.byte_from
    for index in range(extent.count):
        size = sizes[index]
        headers, content_type = extent.headers, shared_type
        if index in own:
            headers = own[index][1] if own[index][1] is not None else headers
            content_type = own[index][2] or shared_type
        message = Message(
            wire_number(sequence + index),
            extent.subject,
            extent.partition,
            wire_number(offset + index),
            extent.create_at,
            headers,
            size,
            content_type,
            extent.object_name,
            extent.codec,
            extent.sha256 if byte is None else None,  # of a pack it is the whole object's
            unverified=bool(extent.unverified),
            payload_missing=bool(extent.missing),
        )
        if byte is None:
            yield Placed(message, None)
        else:
            yield Placed(message, byte + FRAME_PREFIX)
            byte += FRAME_PREFIX + size
