"""The report of a check: what was found, what was mended, and the verdict."""

from __future__ import annotations

import msgspec

SHOWN = 1_000
"""Faults and subjects that a report names; the rest is counted."""
SAMPLE = 100
"""Objects whose payloads a check reads that is not told how many."""
KINDS = {
    "orphan": "objects that nothing points at",
    "missing": "rows whose payload is not in the bucket",
    "short": "rows whose payload is not whole",
    "size": "objects whose size is not that of their message",
    "damaged": "payloads whose checksum is wrong",
    "refs": "objects whose references are counted wrong",
    "doomed": "payloads in the trash that rows still need",
    "counters": "partitions whose messages are counted wrong",
    "ceiling": "sequences that may be given and the bucket does not know of",
}


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong. `repaired`: as far as it can be: what is lost stays lost, but is known."""

    kind: str
    what: str
    object_name: str | None = None
    sequence: int | str | None = None
    subject: str | None = None
    partition: int | None = None
    repaired: bool = False


class Amount(msgspec.Struct):
    count: int = 0
    bytes: int = 0


class SubjectFigures(msgspec.Struct):
    """What the rows of a subject give."""

    subject: str
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    unverified: int = 0


class Objects(msgspec.Struct):
    """Every object of the bucket is in one of these. Of those that rows need, `unneeded` are bytes that none does."""

    needed: Amount
    unneeded: Amount
    waiting: Amount
    trash: Amount
    orphans: Amount
    system: Amount
    foreign: Amount


class Checked(msgspec.Struct):
    """Payloads whose checksums were read; `without` have none but their size."""

    objects: int = 0
    bytes: int = 0
    without: int = 0


class OldestTicket(msgspec.Struct):
    id: str
    state: str
    created_at: int


class JournalFigures(msgspec.Struct, omit_defaults=True):
    """Segments of the journal in the bucket, and the last sequence in them; how many it is behind, and the age of the
    first of those."""

    segments: int
    last_sequence: int | str
    behind: int = 0
    seconds: int = 0


class Report(msgspec.Struct, omit_defaults=True):
    """`verdict`: `clean`, `repaired` (nothing is left to mend), or `faults`. `found`, `repaired` and `left` count them
    by kind, `faults` names the first of them. `quarantined` are rows whose payload is known to be missing. `recovery`
    is told while metadata and bucket are not in step."""

    id: str
    verdict: str
    started_at: int
    finished_at: int
    deep: bool
    watermark: int | str
    rows: int
    messages: int
    bytes: int
    objects: Objects
    checked: Checked
    uploads: int
    trash: int
    quarantined: int
    deletions: int
    subjects: list[SubjectFigures]
    found: dict[str, int]
    repaired: dict[str, int]
    left: dict[str, int]
    faults: list[Fault]
    subjects_not_shown: int = 0
    faults_not_shown: int = 0
    oldest_ticket: OldestTicket | None = None
    oldest_trash_due_at: int | None = None
    ceiling: int | str | None = None
    ceiling_in_bucket: int | str | None = None
    journal: JournalFigures | None = None
    recovery: str | None = None


def verdict(found: dict[str, int], left: dict[str, int]) -> str:
    if any(left.values()):
        return "faults"
    return "repaired" if any(found.values()) else "clean"
