"""Payloads brought to readers that cannot fetch them themselves: with a page, as far as they fit, or piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from minitoolstream.domain.errors import MtsError, bad_request, not_found
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import Extent, Message, Placed, messages_of
from minitoolstream.domain.pack import FRAME_PREFIX, payloads_of
from minitoolstream.ports import ExtentPage
from minitoolstream.services.core import Core
from minitoolstream.services.fetch_messages import set_apart

PIECE_BYTES = MIB
_AT_ONCE = 16
_OVERHEAD = 128  # of a message on the wire, beside its payload, type and headers


@dataclass(frozen=True, slots=True)
class Brought:
    """Messages with their payloads, in order. A payload that is missing in the store is None.

    `too_large`: the message behind them does not fit even alone. `next_sequence`: where to go on.
    """

    messages: list[tuple[Message, bytes | None]]
    next_sequence: int
    too_large: Message | None = None


@dataclass(slots=True)
class _Run:
    """Neighbours of one extent that are read in one go."""

    extent: Extent
    placed: list[Placed]


async def bring_payloads(core: Core, page: ExtentPage, budget: int) -> Brought:
    """As many of the page's messages, from its first on, as fit into so many bytes with their headers."""
    runs, left, stopped_at = await _fitting(core, page.extents, budget)
    payloads = await _read_all(core, runs)
    found = [
        (placed.message, payload)
        for run, some in zip(runs, payloads, strict=True)
        for placed, payload in zip(run.placed, some, strict=True)
    ]
    core.metrics.delivered(len(found))
    if stopped_at is None:
        return Brought(found, page.next_sequence)
    return Brought(found, int(stopped_at.sequence), stopped_at if left == budget else None)


async def _read_all(core: Core, runs: Sequence[_Run]) -> list[list[bytes | None]]:
    if len(runs) == 1:
        return [await _read(core, runs[0])]
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def read(run: _Run) -> list[bytes | None]:
        async with at_once:
            return await _read(core, run)

    return await asyncio.gather(*map(read, runs))


async def _fitting(core: Core, extents: Sequence[Extent], budget: int) -> tuple[list[_Run], int, Message | None]:
    """What fits, the bytes that are left, and the first message that does not."""
    runs: list[_Run] = []
    left = budget
    for extent in extents:
        run = _Run(extent, [])
        for placed in messages_of(extent):
            if extent.unverified:
                placed.message.size = await _real_size(core, extent)
            size = placed.message.size + _around(placed.message)
            if size > left:
                return [*runs, run] if run.placed else runs, left, placed.message
            left -= size
            run.placed.append(placed)
        runs.append(run)
    return runs, left, None


def _around(message: Message) -> int:
    """What a message takes on the wire beside its payload."""
    headers = sum(len(name.encode()) + len(value.encode()) + 8 for name, value in message.headers.items())
    return _OVERHEAD + len(message.content_type) + headers


async def _real_size(core: Core, extent: Extent) -> int:
    """Of a message that the specification's own functions made, nobody has looked at the payload."""
    found = await core.payloads.find(extent.object_name)
    return found.size if found is not None else 0


async def _read(core: Core, run: _Run) -> list[bytes | None]:
    extent = run.extent
    if extent.missing:
        return [None] * len(run.placed)
    try:
        return list(await _payloads(core, run))
    except MtsError as error:
        # One damaged object must not hide the messages behind it.
        if error.code not in {"payload_missing", "checksum_mismatch"}:
            raise
        if error.code == "payload_missing" and not extent.unverified:
            await set_apart(core, extent)
        return [None] * len(run.placed)


async def _payloads(core: Core, run: _Run) -> list[bytes]:
    extent, first = run.extent, run.placed[0].first_byte
    sizes = [placed.message.size for placed in run.placed]
    if first is None:
        return [await core.payloads.get_range(extent.object_name, 0, sizes[0] - 1) if sizes[0] else b""]
    end = first + sum(sizes) + FRAME_PREFIX * (len(sizes) - 1)
    return payloads_of(await core.payloads.get_range(extent.object_name, first - FRAME_PREFIX, end - 1), sizes)


@dataclass(frozen=True, slots=True)
class Download:
    """A message, and the bytes of its payload that were asked for."""

    message: Message
    object_name: str
    first: int
    length: int


async def open_download(core: Core, sequence: int, offset: int, length: int | None) -> Download:
    """`length` None: all that follows. MtsError when there is no such message, payload or range."""
    extent = await core.metadata.get_message(sequence)
    if extent is None:
        raise not_found(f"there is no message {sequence}", sequence=sequence)
    if extent.missing:
        raise MtsError("payload_missing", f"the payload of message {sequence} is not in the object store")
    (placed,) = messages_of(extent)
    if extent.unverified:
        placed.message.size = await _real_size(core, extent)
    size = placed.message.size
    if offset > size or (length is not None and offset + length > size):
        raise bad_request(f"the payload has {size} bytes: ask for a range within it", field="offset", size=size)
    core.metrics.delivered(1)
    return Download(
        placed.message,
        extent.object_name,
        (placed.first_byte or 0) + offset,
        size - offset if length is None else length,
    )


async def read_pieces(core: Core, download: Download) -> AsyncGenerator[bytes, None]:
    """The bytes in order, one piece read ahead of the one that is handed out."""
    end = download.first + download.length
    starts = range(download.first, end, PIECE_BYTES)

    def read(start: int) -> asyncio.Task[bytes]:
        last = min(start + PIECE_BYTES, end) - 1
        return asyncio.create_task(core.payloads.get_range(download.object_name, start, last))

    ahead = read(starts[0]) if starts else None
    try:
        for following in [*starts[1:], None]:
            if ahead is None:
                return
            piece = await ahead
            ahead = None if following is None else read(following)
            yield piece
    finally:
        if ahead is not None:
            ahead.cancel()
