"""The report of a check: what was found, and figures of all that was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from minitoolstream.domain.ceiling import highest
from minitoolstream.domain.consistency import (
    SHOWN,
    Amount,
    Checked,
    Fault,
    JournalFigures,
    Objects,
    OldestTicket,
    Report,
    SubjectFigures,
    verdict,
)
from minitoolstream.domain.journal import segments_of
from minitoolstream.domain.keys import CEILING_PREFIX, JOURNAL_PREFIX
from minitoolstream.domain.message import wire_number
from minitoolstream.domain.subject import new_id
from minitoolstream.ports import Lane, Summary
from minitoolstream.services.core import Core
from minitoolstream.services.fsck_book import Book
from minitoolstream.services.fsck_findings import Findings

_CEILINGS = 1_000


@dataclass(slots=True)
class Counted:
    """What was counted on the way: subjects, the first of them by name, and orphans."""

    subjects: dict[str, SubjectFigures] = field(default_factory=dict)
    subjects_not_shown: int = 0
    totals: SubjectFigures = field(default_factory=lambda: SubjectFigures(""))
    orphans: Amount = field(default_factory=Amount)

    def add(self, lane: Lane) -> None:
        figures = self.subjects.get(lane.subject)
        if figures is None and len(self.subjects) < SHOWN:
            figures = self.subjects[lane.subject] = SubjectFigures(lane.subject)
        if figures is None:
            self.subjects_not_shown += int(lane.partition == 0)
        for one in (figures, self.totals):
            if one is not None:
                one.rows += lane.rows
                one.messages += lane.messages
                one.bytes += lane.bytes
                one.unverified += lane.unverified


async def make_report(core: Core, book: Book, findings: Findings, counted: Counted, *, deep: bool) -> Report:
    summary = await core.audit.summary()
    ceiling, journal = await _ceiling_in_bucket(core), await _journal(core, book)
    given = max(summary.ceiling or 0, summary.watermark if ceiling else 0)
    if (ceiling or 0) < given:
        what = f"the bucket knows of sequences up to {ceiling or 0}, and they may be given up to {given}"
        findings.add(Fault("ceiling", what))
    return Report(
        id=new_id(await core.metadata.now_ms()),
        verdict=verdict(findings.found, findings.left),
        started_at=int(book.noted("started_at")),
        finished_at=summary.time,
        deep=deep,
        watermark=wire_number(summary.watermark),
        rows=counted.totals.rows,
        messages=counted.totals.messages,
        bytes=counted.totals.bytes,
        objects=_objects(book, counted),
        checked=Checked(*book.checked()),
        uploads=summary.uploads,
        trash=summary.trash,
        quarantined=summary.missing,
        deletions=summary.deletions,
        subjects=list(counted.subjects.values()),
        found=findings.found,
        repaired=findings.repaired,
        left=findings.left,
        faults=findings.shown,
        subjects_not_shown=counted.subjects_not_shown,
        faults_not_shown=findings.not_shown,
        oldest_ticket=_ticket(summary),
        oldest_trash_due_at=summary.oldest_trash_due_at,
        ceiling=None if summary.ceiling is None else wire_number(summary.ceiling),
        ceiling_in_bucket=None if ceiling is None else wire_number(ceiling),
        journal=journal,
        recovery=summary.recovery,
    )


def _objects(book: Book, counted: Counted) -> Objects:
    needed, unneeded = Amount(), Amount()
    for _, size, used, start in book.needed():
        needed.count += 1
        needed.bytes += size
        # Before the first message that is needed stands the head; how long it is, only the object tells.
        dead = max(size - start - used, 0)
        unneeded.count += int(dead > 0)
        unneeded.bytes += dead
    amounts = {place: Amount(*amount) for place, amount in book.amounts().items()}
    waiting = amounts.get("waiting", Amount())
    waiting.count -= counted.orphans.count
    waiting.bytes -= counted.orphans.bytes
    system = Amount()
    for place in ("record", "report", "system"):
        one = amounts.get(place, Amount())
        system.count += one.count
        system.bytes += one.bytes
    return Objects(
        needed=needed,
        unneeded=unneeded,
        waiting=waiting,
        trash=amounts.get("trash", Amount()),
        orphans=counted.orphans,
        system=system,
        foreign=amounts.get("foreign", Amount()),
    )


async def _ceiling_in_bucket(core: Core) -> int | None:
    """As it is now: hosts raise it, and the bucket knows before they may."""
    listed = await core.payloads.list_after(CEILING_PREFIX, "", _CEILINGS)
    return highest(one.name for one in listed) or None


async def _journal(core: Core, book: Book) -> JournalFigures:
    segments = segments_of(book.system_names(JOURNAL_PREFIX))
    last = max((segment.upto for segment in segments), default=0)
    lag = await core.journal.journal_lag()
    return JournalFigures(len(segments), wire_number(last), lag.behind, lag.seconds)


def _ticket(summary: Summary) -> OldestTicket | None:
    found = summary.oldest_ticket
    return None if found is None else OldestTicket(found["id"], found["state"], found["created_at"])
