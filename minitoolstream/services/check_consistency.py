"""`mts fsck`: does every row have its payload, and every object its rows?

Rows and what else may point at objects are written into a book, then the bucket's listing. What does not fit is looked
at again, alone and at one moment, before it counts as a fault: publishes, sweeps and deletions go on all the while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import msgspec

from minitoolstream.domain.consistency import SAMPLE, Fault, Report
from minitoolstream.domain.keys import REPORT_PREFIX
from minitoolstream.domain.message import Extent, wire_number
from minitoolstream.domain.subject import new_id
from minitoolstream.domain.upload import State
from minitoolstream.ports import Lane, ObjectInfo
from minitoolstream.services.check_payloads import check_object
from minitoolstream.services.core import Core
from minitoolstream.services.fsck_book import Book
from minitoolstream.services.fsck_findings import (
    Findings,
    damaged,
    kind_of,
    may_be_committed,
    problem_of,
    refs_text,
    waiting_text,
)
from minitoolstream.services.fsck_report import Counted, make_report
from minitoolstream.services.put_once import put_once

K = TypeVar("K", int, str)
T = TypeVar("T")
Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and how much there is, if that is known."""

_ENTRIES = 1_000
_NAMES = 1_000
_LOOKS = 16


@dataclass(frozen=True, slots=True)
class Options:
    """`sample`: how many objects are read to check their payloads; all of them with `deep`."""

    deep: bool = False
    sample: int = SAMPLE
    repair: bool = False


async def check_consistency(core: Core, book: Book, options: Options, progress: Progress) -> Report:
    """The report; it is also what `GET /v1/consistency` answers from now on. What a book holds of a check that was
    interrupted is not read again."""
    check = _Check(core, book, options, progress)
    report = await check.run()
    await _keep(core, report)
    return report


async def _keep(core: Core, report: Report) -> None:
    name, body = REPORT_PREFIX + report.id, msgspec.json.encode(report)
    await put_once(core.payloads, name, body, content_type="application/json")
    await core.audit.put_report(name, len(body))


class _Check:
    def __init__(self, core: Core, book: Book, options: Options, progress: Progress) -> None:
        self._core = core
        self._book = book
        self._options = options
        self._progress = progress
        self._findings = Findings()
        self._counted = Counted()

    async def run(self) -> Report:
        book, audit = self._book, self._core.audit
        if book.noted("started_at") is None:
            book.note("started_at", (await audit.summary()).time)
        await self._read("uploads", "", audit.uploads, book.add_uploads)
        await self._read("rows", 0, audit.rows, book.add_rows)
        await self._read("objects", "", audit.objects, book.add_objects)
        await self._read("trash", "", audit.trash, book.add_trash)
        await self._read_bucket()
        await self._look_at_lanes()
        await self._look_at_orphans()
        await self._look_at_rows()
        await self._look_at_refs()
        await self._look_at_doomed()
        await self._check_payloads()
        return await make_report(self._core, self._book, self._findings, self._counted, deep=self._options.deep)

    # -- reading everything once

    async def _read(
        self,
        what: str,
        start: K,
        page: Callable[[K, int], Awaitable[list[T]]],
        add: Callable[[list[T]], K],
    ) -> None:
        book = self._book
        if book.noted(f"{what} done"):
            return
        after: K = book.noted(what) or start
        count = 0
        while found := await page(after, _ENTRIES):
            after = add(found)
            book.note(what, after)
            count += len(found)
            self._progress(what, count, None)
        book.note(f"{what} done", 1)

    async def _read_bucket(self) -> None:
        async def page(after: str, limit: int) -> list[ObjectInfo]:
            return await self._core.payloads.list_after("", after, limit)

        def add(listed: list[ObjectInfo]) -> str:
            return self._book.add_seen([(one.name, one.size, kind_of(one.name)) for one in listed])

        await self._read("bucket", "", page, add)

    # -- looking again at what does not fit

    async def _look_at_lanes(self) -> None:
        subject, partition, more, seen = "", 0, True, 0
        while more:
            page = await self._core.audit.lanes(subject, partition)
            for lane in page.lanes:
                subject, partition, seen = lane.subject, lane.partition, seen + 1
                self._counted.add(lane)
                if not lane.is_right:
                    await self._wrong_counters(lane)
            more = page.more
            self._progress("counters", seen, None)

    async def _wrong_counters(self, lane: Lane) -> None:
        counters = lane.counters or {}
        what = (
            f"rows give {lane.messages} messages and {lane.bytes} bytes, counted are "
            f"{counters.get('messages', 0)} and {counters.get('bytes', 0)}"
        )
        mended = self._options.repair and (await self._core.audit.mend_lane(lane.subject, lane.partition)).mended
        self._findings.add(
            Fault("counters", what, subject=lane.subject, partition=lane.partition, repaired=bool(mended))
        )

    async def _look_at_orphans(self) -> None:
        async for names in self._in_chunks("orphans", self._book.orphans(), _NAMES):
            pointing = await self._core.audit.names(names)
            young = await self._first_young()
            alone = [name for name in names if pointing[name].nothing and not may_be_committed(name, young)]
            await self._forget_reports([name for name in alone if name.startswith(REPORT_PREFIX)])
            # What is found now was there when nothing pointed at it: names are never used twice.
            found = await self._find([name for name in alone if not name.startswith(REPORT_PREFIX)])
            discarded: set[str] = set()
            if self._options.repair and found:
                discarded.update(await self._core.audit.discard_orphans(list(found)))
            for name, info in found.items():
                self._counted.orphans.count += 1
                self._counted.orphans.bytes += info.size
                what = f"{info.size} bytes that nothing points at"
                self._findings.add(Fault("orphan", what, object_name=name, repaired=name in discarded))

    async def _forget_reports(self, names: list[str]) -> None:
        """What a check left that was killed before its report counted: ours to clear away, and no fault."""
        latest = await self._core.audit.get_report()
        old = [name for name in names if latest is None or name != latest[0]]
        if old:
            await self._core.audit.discard_orphans(old)

    async def _first_young(self) -> str:
        """How the ids of packs and reports begin that may still be committed."""
        age_ms = int(self._core.settings["packs.grace"]) * 1000
        return new_id(await self._core.metadata.now_ms() - age_ms)[:13]

    async def _look_at_rows(self) -> None:
        async for keys in self._in_chunks("payloads", self._book.without_payload(), _NAMES):
            for extent, found in await self._look_for(keys):
                await self._without_payload(extent, found)
        async for keys in self._in_chunks("quarantine", self._book.with_payload_again(), _NAMES):
            await self._with_payload(keys)
        async for uploads in self._in_chunks("waiting uploads", self._book.waiting_without_payload(), _NAMES):
            await self._waiting_without_payload(dict(uploads))

    async def _waiting_without_payload(self, uploads: dict[str, str]) -> None:
        """An upload's object is deleted after the upload, so one that still waits without it has lost it."""
        found = await self._find(set(uploads.values()))
        for upload_id, name in uploads.items():
            if name in found or (now := await self._core.metadata.get_upload(upload_id)) is None:
                continue
            upload, receipt = now
            if (upload.state, upload.object_name) == (State.STORED, name):
                self._findings.add(Fault("missing", waiting_text(receipt), name, subject=upload.subject))

    async def _look_for(self, keys: list[int]) -> list[tuple[Extent, ObjectInfo | None]]:
        """Rows whose payload is wrong for sure: a payload is deleted after its row, so one that is still there while
        its payload is not has lost it."""
        before = await self._core.audit.rows_at(keys)
        found = await self._find({row.object_name for row in before.values()})
        after = await self._core.audit.rows_at(keys)
        wrong = []
        for key, row in before.items():
            now = after.get(key)
            is_same = now is not None and (now.object_name, now.byte_from) == (row.object_name, row.byte_from)
            info = found.get(row.object_name)
            if is_same and not row.missing and problem_of(row, info):
                wrong.append((row, info))
        return wrong

    async def _without_payload(self, row: Extent, info: ObjectInfo | None) -> None:
        kind, what = problem_of(row, info) or ("missing", "")
        repaired = False
        if self._options.repair and kind != "size":
            repaired = await self._core.audit.quarantine([(row.sequence, row.object_name, kind)]) > 0
        sequence = wire_number(row.sequence)
        self._findings.add(Fault(kind, what, row.object_name, sequence, row.subject, row.partition, repaired=repaired))

    async def _with_payload(self, keys: list[int]) -> None:
        if not self._options.repair:
            return
        rows = await self._core.audit.rows_at(keys)
        found = await self._find({row.object_name for row in rows.values()})
        back = [key for key, row in rows.items() if row.missing and not problem_of(row, found.get(row.object_name))]
        if back:
            await self._core.audit.release(back)

    async def _look_at_refs(self) -> None:
        async for names in self._in_chunks("references", self._book.wrong_refs(), _NAMES):
            pointing = await self._core.audit.names(names)
            wrong = [name for name in names if not pointing[name].is_right]
            mended = await self._core.audit.mend_refs(wrong) if self._options.repair and wrong else 0
            for name in wrong:
                what = refs_text(pointing[name])
                self._findings.add(Fault("refs", what, object_name=name, repaired=mended >= len(wrong)))

    async def _look_at_doomed(self) -> None:
        async for names in self._in_chunks("trash", self._book.doomed(), _NAMES):
            pointing = await self._core.audit.names(names)
            wrong = [name for name in names if pointing[name].is_doomed]
            kept = set(await self._core.audit.keep(wrong)) if self._options.repair and wrong else set()
            for name in wrong:
                what = f"{pointing[name].rows} rows need it, and it is in the trash"
                self._findings.add(Fault("doomed", what, object_name=name, repaired=name in kept))

    async def _in_chunks(self, what: str, items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
        walk: Iterator[T] = iter(items)
        done = 0
        while chunk := list(islice(walk, size)):
            yield chunk
            done += len(chunk)
            self._progress(f"{what} looked at again", done, None)

    async def _find(self, names: Iterable[str]) -> dict[str, ObjectInfo]:
        limit = asyncio.Semaphore(_LOOKS)

        async def look(name: str) -> ObjectInfo | None:
            async with limit:
                return await self._core.payloads.find(name)

        wanted = list(names)
        looked = await asyncio.gather(*map(look, wanted))
        return {name: info for name, info in zip(wanted, looked, strict=True) if info is not None}

    # -- reading payloads

    async def _check_payloads(self) -> None:
        options, book = self._options, self._book
        names = list(book.to_check(options.sample)) if not options.deep else book.to_check(None)
        total = len(names) if isinstance(names, list) else None
        async for chunk in self._in_chunks("checksums", names, _LOOKS // 2):
            checked = await asyncio.gather(*(check_object(self._core, name, book.keys_of(name)) for name in chunk))
            for name, one in zip(chunk, checked, strict=True):
                # Where a payload is missing, the listing has told so already.
                wrong = [damaged(row, error) for row, error in one.wrong if error.code != "payload_missing"]
                book.add_checked(name, one.bytes, one.without, [msgspec.json.encode(fault) for fault in wrong])
            self._progress("checksums", book.checked()[0], total)
        for body in book.damaged():
            self._findings.add(msgspec.json.decode(body, type=Fault))
