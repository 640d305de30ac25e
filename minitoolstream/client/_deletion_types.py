"""Deletions as the SDK shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deletion:
    """What was deleted for good. `sequences`: all messages that shared the payload of `sequence`. Not `done`: nobody
    can read it any more, but the bucket still holds some of it; ask again, or leave it to the host.

    Example: `assert client.delete_message(42, "asked for by its owner").done`
    """

    id: str
    kind: str
    subject: str
    at: int
    who: str
    reason: str
    messages: int
    bytes: int
    done: bool
    sequence: int | None = None
    sequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionRecord:
    """An entry of the record of deletions: one message with those that shared its payload (`kind` is `message`), or all
    of a subject up to a sequence (`subject`).

    Example: `for record in client.deletions(): print(record.when, record.who, record.reason)`
    """

    id: str
    kind: str
    subject: str
    when: int
    who: str
    reason: str
    sequences: tuple[int, ...] = ()
    upto: int | None = None
