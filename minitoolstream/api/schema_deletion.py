"""The shapes of deletions on the wire."""

from __future__ import annotations

import msgspec


class DeletionAnswer(msgspec.Struct, omit_defaults=True):
    """What is deleted. `sequences`: all messages that shared the payload. Not `done`: readers see nothing of it any
    more, but the bucket still holds some of it; ask again, or leave it to the reconciler."""

    id: str
    kind: str
    subject: str
    at: int
    who: str
    reason: str
    messages: int
    bytes: int
    done: bool
    sequence: int | str | None = None
    sequences: list[int | str] = []


class PurgeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`reason` goes on the record."""

    reason: str = ""


class DeletedWhat(msgspec.Struct, omit_defaults=True):
    """One message and those that shared its payload, or all of a subject up to a sequence."""

    kind: str
    subject: str
    sequence: int | str | None = None
    upto: int | str | None = None
    sequences: list[int | str] = []


class DeletionRecord(msgspec.Struct):
    """An entry of the record of deletions, which is kept for ever."""

    id: str
    what: DeletedWhat
    when: int
    who: str
    reason: str


class DeletionRecords(msgspec.Struct, omit_defaults=True):
    """Oldest first; with `next`, there are more `after` that one."""

    deletions: list[DeletionRecord]
    next: str | None = None
