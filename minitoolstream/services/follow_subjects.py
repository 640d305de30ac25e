"""Subjects that ask for copies: their messages hold contents as long as they are there.

Messages are followed behind a cursor, off the way of any publish; whoever dies in between, the next goes on."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from minitoolstream.domain.catalog_tables import REFS, REFS_BY_SUBJECT, SUBJECTS
from minitoolstream.domain.cid import Cid, cid_of_sha256, read_binary
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import Extent, Placed, messages_of
from minitoolstream.domain.placement import check_rf
from minitoolstream.domain.subject_settings import Copies
from minitoolstream.ports.catalog import Delete, Put, Row
from minitoolstream.services.claims import end_claim, give_up_claim, take_claim
from minitoolstream.services.core import Core
from minitoolstream.services.hold_content import hold_content, let_go
from minitoolstream.services.pin_message import cid_of_message, is_too_large, reference_of
from minitoolstream.services.place_copies import live_peers

_ALL = 0
_MOST = 1000
_PAGE = 100
"""Messages that are held, or let go, between two looks at the clock and the claim."""
_AT_ONCE = 16
"""Of a page. Each may have up to 8 MiB of its payload read."""
_TURN = 20.0
"""Seconds that a run stays with the messages of a subject which come, and with those which go: others wait for it."""
_PART = 1 << 20
_MAYBE_COMING = timedelta(seconds=60)
T = TypeVar("T")
Keep = Callable[[], Awaitable[bool]]
"""Takes the subject's claim for longer; False when it is another's by now."""
_log = logging.getLogger(__name__)


def part_of(sequence: int) -> int:
    return sequence // _PART


async def note_subject(core: Core, subject: str, copies: Mapping[str, Any]) -> None:
    """Written before the setting itself: a subject that asks for copies is never forgotten."""
    check_rf(int(copies["rf"]), await live_peers(core), copies.get("zones") or ())
    begin = begin_of(core, subject)
    if await is_followed(core, subject):  # its place stays
        begin = Put(SUBJECTS, {name: begin.row[name] for name in (*SUBJECTS.key, "noted_at")})
    await core.catalog.write([begin])


async def is_followed(core: Core, subject: str) -> bool:
    return await core.catalog.get(SUBJECTS, (_ALL, subject)) is not None


def begin_of(core: Core, subject: str) -> Put:
    """The row by which a subject's messages are followed from the first on."""
    row = {"slice": _ALL, "subject": subject, "noted_at": core.wall(), "next_sequence": 1, "first_sequence": 1}
    return Put(SUBJECTS, row)


async def follow_subjects(core: Core) -> tuple[int, int]:
    """How many messages hold a content since this run, and how many do no more."""
    held = gone = 0
    after: tuple[str, ...] = ()
    problems: list[MtsError] = []
    while rows := await core.catalog.page(SUBJECTS, (_ALL,), _MOST, after=after):
        for row in rows:
            try:
                more_held, more_gone = await _follow(core, row["subject"])
            except MtsError as error:  # the others do not wait for it
                _log.warning("the messages of %s are not followed: %s", row["subject"], error.message)
                problems.append(error)
                continue
            held, gone = held + more_held, gone + more_gone
        after = (rows[-1]["subject"],)
    if problems:
        raise problems[0]
    return held, gone


async def _follow(core: Core, subject: str) -> tuple[int, int]:
    name, holder = f"subject/{subject}", secrets.token_hex(8)
    if not await take_claim(core, name, holder):
        return 0, 0

    mine, forgotten = True, False

    async def keep() -> bool:
        nonlocal mine
        mine = mine and await take_claim(core, name, holder)
        return mine

    try:
        row = await core.catalog.get(SUBJECTS, (_ALL, subject))  # as whoever had the claim before left it
        if row is None:
            forgotten = True
            return 0, 0
        copies = await copies_of(core, subject)
        row = await _begin_again(core, row, copies)
        held = await _hold_new(core, subject, int(row["next_sequence"] or 1), copies, keep) if copies else 0
        gone, all_gone = await _let_go_old(core, row, keep, everything=copies is None)
        settled = row["noted_at"] is None or core.wall() - row["noted_at"] > _MAYBE_COMING
        if copies is None and all_gone and settled and await keep():
            # Not when it was noted again meanwhile: then its setting is coming, or there.
            expected = {"noted_at": row["noted_at"]}
            forgotten = await core.catalog.delete_if(SUBJECTS, (_ALL, subject), expected)
        return held, gone
    finally:
        await (end_claim if forgotten else give_up_claim)(core, name, holder)


async def copies_of(core: Core, subject: str) -> Copies | None:
    try:
        return (await core.subjects.get(subject)).settings.copies
    except MtsError as error:
        if error.code != "unknown_subject":
            raise
        return None


async def _begin_again(core: Core, row: Row, copies: Copies | None) -> Row:
    """From where its messages are followed: the first again when other copies are asked for than before, or none, so
    that those which were let go are held when they are asked for again. Written before anything is let go."""
    wanted = {"rf": copies.rf, "zones": frozenset(copies.zones or ())} if copies else {"rf": None, "zones": frozenset()}
    if all(row[name] == value for name, value in wanted.items()):
        return row
    first = int(row["first_sequence"] or 1)
    if first > 1:
        page = await core.metadata.get_messages(row["subject"], 0, 1)
        first = min([first, *(extent.sequence - extent.count + 1 for extent in page.extents)])
    changed = {**_place(row["subject"], 1), "first_sequence": first, **wanted}
    await core.catalog.write([Put(SUBJECTS, changed)])
    return {**row, **changed}


def _place(subject: str, sequence: int) -> Row:
    return {"slice": _ALL, "subject": subject, "next_sequence": sequence}


async def _hold_new(core: Core, subject: str, start: int, copies: Copies, keep: Keep) -> int:
    held, end = 0, time.monotonic() + _TURN
    while True:
        page = await core.metadata.get_messages(subject, start, _PAGE)
        found = [(extent, placed) for extent in page.extents for placed in messages_of(extent)]
        held += sum(await _each(lambda one: _hold(core, *one, copies), found))
        if page.next_sequence > start:
            start = page.next_sequence
            await core.catalog.write([Put(SUBJECTS, _place(subject, start))])
        if not await keep() or not page.extents or time.monotonic() > end:
            return held


async def _each(act: Callable[[T], Awaitable[bool]], items: Iterable[T]) -> list[bool]:
    """The claim is kept until all have ended, also when one fails."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> bool:
        async with at_once:
            return await act(item)

    outcomes = await asyncio.gather(*map(one, items), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, bool)]


async def hold_messages(core: Core, subject: str, digests: Mapping[int, str]) -> int:
    """Messages whose digests somebody computed; what is wrong, the copy finds out. How many hold their content now.
    What has gone is let go, also when whoever noted it died behind that, and this is repeated."""
    copies = await copies_of(core, subject)
    held = 0
    if copies is not None:
        for sequence, digest in digests.items():
            extent = await core.metadata.get_message(sequence)
            if extent is not None and extent.subject == subject:
                if extent.missing or extent.unverified:
                    continue
                (placed,) = messages_of(extent)
                held += await _note(core, placed, cid_of_sha256(digest), copies)
            else:
                await _let_go_told(core, subject, sequence)
        if not held or await copies_of(core, subject) is not None:
            return held
    for sequence in digests:
        await _let_go_told(core, subject, sequence)
    return 0


async def _let_go_told(core: Core, subject: str, sequence: int) -> None:
    entry = await core.catalog.get(REFS_BY_SUBJECT, (subject, part_of(sequence), sequence))
    if entry is not None:
        await let_go_of(core, subject, entry)


async def _note(core: Core, placed: Placed, cid: Cid, copies: Copies) -> bool:
    """Whether the message still holds it. Whoever lets go of messages passes each place once: what went while it was
    noted is let go here."""
    sequence, subject = int(placed.message.sequence), placed.message.subject
    entry = {"subject": subject, "part": part_of(sequence), "sequence": sequence, "cid_bin": cid.binary}
    async with core.turns.turn(cid):  # many that change one row at once would be told to try again
        await core.catalog.write([Put(REFS_BY_SUBJECT, entry)])
        await hold_content(core, cid, reference_of(placed, copies.rf, frozenset(copies.zones or ())))
    there = await core.metadata.get_message(sequence) is not None
    if not there:
        await let_go_of(core, subject, entry)
    return there


async def _hold(core: Core, extent: Extent, placed: Placed, copies: Copies) -> bool:
    if extent.missing or extent.unverified:
        return False
    try:
        cid = await _cid(core, extent, placed)
    except MtsError as error:
        if error.code != "payload_missing":
            raise
        _log.warning("message %s has no copies: %s", placed.message.sequence, error.message)
        return False
    return cid is not None and await _note(core, placed, cid, copies)


async def _cid(core: Core, extent: Extent, placed: Placed) -> Cid | None:
    if not is_too_large(extent, placed):
        return await cid_of_message(core, extent, placed)
    sequence = int(placed.message.sequence)
    told = await core.catalog.get(REFS_BY_SUBJECT, (extent.subject, part_of(sequence), sequence))
    return read_binary(told["cid_bin"]) if told else None


async def hold_again(core: Core, cid: Cid, reference: str) -> None:
    """A message that is said to hold a content does so, or is not said to any more."""
    sequence = int(reference.removeprefix("message/"))
    extent = await core.metadata.get_message(sequence)
    copies = await copies_of(core, extent.subject) if extent is not None else None
    if extent is None or copies is None or extent.missing or extent.unverified:
        await core.catalog.write([Delete(REFS, (cid.binary, reference))])
        return
    (placed,) = messages_of(extent)
    await _note(core, placed, cid, copies)


async def _let_go_old(core: Core, row: Row, keep: Keep, *, everything: bool) -> tuple[int, bool]:
    """How many, and whether that is all. Messages go from the head of their subject: what lies before its first one is
    gone. With `everything`, also those whose digests somebody told before they were followed. What was let go is not
    read over again: `first_sequence` says where it ends."""
    subject, first, over = row["subject"], int(row["first_sequence"] or 1), time.monotonic() + _TURN
    page = await core.metadata.get_messages(subject, 0, 1)
    there = [extent.sequence - extent.count + 1 for extent in page.extents]
    end = page.watermark + 1 if everything else min([*there, page.next_sequence])
    gone = 0
    for part in range(part_of(first), part_of(max(first, end - 1)) + 1):
        while entries := await core.catalog.page(
            REFS_BY_SUBJECT, (subject, part), _PAGE, after=(first - 1,), until=(end - 1,)
        ):
            await _each(lambda entry: let_go_of(core, subject, entry), entries)
            gone, first = gone + len(entries), entries[-1]["sequence"] + 1
            if not await keep() or not await _gone_before(core, row, first) or time.monotonic() > over:
                return gone, False
    return gone, end <= first or (await keep() and await _gone_before(core, row, end))


async def _gone_before(core: Core, row: Row, sequence: int) -> bool:
    """False when the subject was forgotten, or noted again, since it was read: the next run begins with that."""
    changed = {"slice": _ALL, "subject": row["subject"], "first_sequence": sequence}
    return await core.catalog.put_if(SUBJECTS, changed, {"noted_at": row["noted_at"]}) is None


async def let_go_of(core: Core, subject: str, entry: Row) -> bool:
    """The list's entry goes last: it leads to the reference."""
    cid, sequence = read_binary(entry["cid_bin"]), entry["sequence"]
    async with core.turns.turn(cid):
        ended = await let_go(core, cid, [f"message/{sequence}"])
    await core.catalog.write([Delete(REFS_BY_SUBJECT, (subject, part_of(sequence), sequence))])
    return ended


async def followed(core: Core) -> AsyncIterator[list[str]]:
    """Pages of subjects that are followed."""
    after: tuple[str, ...] = ()
    while rows := await core.catalog.page(SUBJECTS, (_ALL,), _MOST, after=after):
        yield [row["subject"] for row in rows]
        after = (rows[-1]["subject"],)
