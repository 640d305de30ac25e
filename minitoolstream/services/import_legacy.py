"""Moving house: the messages, positions and payloads of the first server become ours, under the same sequences."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from minitoolstream.domain.ceiling import next_ceiling
from minitoolstream.domain.checks import check_headers
from minitoolstream.domain.consumer import ConsumerSettings, check_durable
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.limits import MIB
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.domain.subject import check_subject
from minitoolstream.ports import ObjectAbout, PayloadStore, StoredPart
from minitoolstream.ports.legacy import ImportRow, ImportStore, LegacyMessage, LegacySource
from minitoolstream.services.core import Core
from minitoolstream.services.put_once import put_once
from minitoolstream.services.raise_ceiling import announce
from minitoolstream.services.read_ahead import part_length, read_ahead

PAGE = 500
_AT_ONCE = 16
_PIECE = 16 * MIB
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ImportReport:
    """What became of the rows. `refused`: subjects and durables whose names we do not take, with how many rows each
    has. `headers_dropped`: messages whose headers are more than we take. Counted by this run; an earlier one has seen
    the `already`."""

    messages: int = 0
    bytes: int = 0
    already: int = 0
    copied: int = 0
    missing: int = 0
    headers_dropped: int = 0
    positions: int = 0
    last_sequence: int = 0
    refused: Counter[str] = field(default_factory=Counter)


async def import_legacy(
    core: Core,
    store: ImportStore,
    source: LegacySource,
    *,
    payloads: PayloadStore | None,
    progress: Progress = lambda _done, _total: None,
) -> ImportReport:
    """`payloads`: where the objects are copied from; None when they are in our bucket already. Run again after an
    interruption, it goes on."""
    await _must_be_ready(core)
    state, report, total = await store.begin(source.name), ImportReport(), await source.count()
    after, seen = state.upto, 0
    while not state.done and (page := await source.messages(after, PAGE)):
        after, seen = page[-1].sequence, seen + len(page)
        await _raise_ceiling(core, after)
        await _take(core, store, page, payloads, report)
        progress(seen, total)
    report.last_sequence, report.already = after, max(total - seen, 0)
    await _take_positions(core, store, source, report, is_open=state.done)
    await store.finish()
    return report


async def _must_be_ready(core: Core) -> None:
    """A ceiling that the bucket knows; a first run needs one, a later one has it."""
    position = await core.journal.position()
    if position.recovery != "importing":
        await core.ceiling.keep()


async def _raise_ceiling(core: Core, sequence: int) -> None:
    """The bucket knows of the sequences before they are here (rule 28)."""
    position = await core.journal.position()
    if sequence > position.top:
        target = next_ceiling(sequence)
        await announce(core.journal, core.payloads, target)
        await core.journal.raise_ceiling(target)


async def _take(
    core: Core, store: ImportStore, page: Sequence[LegacyMessage], payloads: PayloadStore | None, report: ImportReport
) -> None:
    wanted = [message for message in page if _is_ours(message, report)]
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def look(message: LegacyMessage) -> ObjectAbout | None:
        async with at_once:
            if payloads is None:
                return await core.payloads.about(message.object_name)
            found = await payloads.about(message.object_name)
            if found is not None:
                await _copy(core.payloads, payloads, message.object_name, found)
                report.copied += 1
            return found

    found = await asyncio.gather(*map(look, wanted))
    rows = [_row(message, about, report) for message, about in zip(wanted, found, strict=True)]
    report.messages += await store.apply(rows)
    report.bytes += sum(row.size for row in rows)
    report.missing += sum(row.is_missing for row in rows)


def _is_ours(message: LegacyMessage, report: ImportReport) -> bool:
    try:
        check_subject(message.subject)
    except MtsError:
        report.refused[f"subject {message.subject}"] += 1
        return False
    return True


def _row(message: LegacyMessage, about: ObjectAbout | None, report: ImportReport) -> ImportRow:
    headers = {_text(name): _text(value) for name, value in message.headers.items()}
    try:
        headers = check_headers(headers)
    except MtsError:  # more than we take, and no reason to lose the payload
        report.headers_dropped += 1
        headers = {}
    size, content_type = (about.size, about.content_type) if about else (0, None)
    if content_type == DEFAULT_CONTENT_TYPE or not content_type:
        content_type = headers.get("content-type")
    return ImportRow(message, headers, size, content_type, about is None)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


async def _copy(target: PayloadStore, source: PayloadStore, name: str, about: ObjectAbout) -> None:
    """Under the same name; one that is there from an earlier run is left."""
    kind = about.content_type or DEFAULT_CONTENT_TYPE
    if about.size <= _PIECE:
        body = await source.get_range(name, 0, about.size - 1) if about.size else b""
        await put_once(target, name, body, content_type=kind)
        return
    if await target.find(name) is not None:
        return
    multipart_id = await target.create_multipart(name, content_type=kind, metadata={})
    made = False
    try:
        parts: list[StoredPart] = []
        pieces = read_ahead(partial(source.get_range, name), about.size, part_length(about.size, _PIECE))
        async with aclosing(pieces):
            async for piece in pieces:
                parts.append(await target.put_part(name, multipart_id, len(parts) + 1, piece))
        made = await target.complete_multipart(name, multipart_id, parts)
    finally:
        if not made:
            await target.abort_multipart(name, multipart_id)
    if not made and await target.find(name) is None:
        raise unavailable(f"the object store lost the parts of {name}; run the import again")


async def _take_positions(
    core: Core, store: ImportStore, source: LegacySource, report: ImportReport, *, is_open: bool
) -> None:
    """A durable may stand behind the last message that is left: numbers go on behind that too. Of an import that has
    ended, durables have moved on by themselves."""
    if is_open:
        return
    after: tuple[str, str] | None = None
    while page := await source.positions(after, PAGE):
        highest = max(position.last_sequence for position in page)
        report.last_sequence = max(report.last_sequence, highest)
        await _raise_ceiling(core, report.last_sequence)
        await store.go_on_behind(report.last_sequence)
        for position in page:
            try:
                subject, durable = check_subject(position.subject), check_durable(position.durable)
            except MtsError:
                report.refused[f"durable {position.durable} of {position.subject}"] += 1
                continue
            await core.deliveries.put_consumer(subject, durable, ConsumerSettings(), 1)
            await core.deliveries.ack(subject, durable, position.last_sequence)
            report.positions += 1
        after = (page[-1].durable, page[-1].subject)
