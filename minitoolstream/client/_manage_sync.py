"""Durables, subjects and dead letters: what an operator does with them, for ordinary code."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from minitoolstream.client._consumer_types import Consumer
from minitoolstream.client._deletion_types import Deletion
from minitoolstream.client._loop_thread import LoopThread
from minitoolstream.client._manage import AsyncConsumers, AsyncDeadLetters, AsyncSubjects
from minitoolstream.client._same_arguments import same_arguments
from minitoolstream.client._subject_types import SubjectDetails, SubjectInfo
from minitoolstream.client._types import Page, Start


class Consumers:
    """The durables of subjects.

    Example: `client.consumers.seek("orders", "billing", "first")`
    """

    def __init__(self, thread: LoopThread, consumers: AsyncConsumers) -> None:
        self._thread = thread
        self._consumers = consumers

    def list(self, subject: str) -> builtins.list[Consumer]:
        """All durables of a subject, in the order of their names."""
        return self._thread.run(self._consumers.list(subject))

    def get(self, subject: str, durable: str) -> Consumer:
        """Its position, lag and settings; an error `unknown_durable` when there is none."""
        return self._thread.run(self._consumers.get(subject, durable))

    @same_arguments(AsyncConsumers.put)
    def put(self, *args: Any, **options: Any) -> Consumer:
        """Make a durable, or change its settings, see `AsyncConsumers.put`.

        Example: `client.consumers.put("orders", "billing", mode="shared", max_deliver=3)`
        """
        return self._thread.run(self._consumers.put(*args, **options))

    def seek(self, subject: str, durable: str, to: Start) -> Consumer:
        """Move its position, so that `to` is read next; readers start again there."""
        return self._thread.run(self._consumers.seek(subject, durable, to))

    def delete(self, subject: str, durable: str) -> None:
        """Forget it and its position; messages stay."""
        self._thread.run(self._consumers.delete(subject, durable))


class Subjects:
    """Subjects and their settings.

    Example: `client.subjects.put("orders", partitions=4, codecs=["raw", "zstd"])`
    """

    def __init__(self, thread: LoopThread, subjects: AsyncSubjects) -> None:
        self._thread = thread
        self._subjects = subjects

    def list(self, prefix: str = "") -> Iterator[SubjectInfo]:
        """All subjects whose names begin with `prefix`, in the order of their names.

        Example: `[info.subject for info in client.subjects.list("orders.")]`
        """
        return self._thread.iterate(self._subjects.list(prefix))

    def get(self, subject: str) -> SubjectDetails:
        """Its partitions, settings and counters; an error `unknown_subject` when there is none."""
        return self._thread.run(self._subjects.get(subject))

    @same_arguments(AsyncSubjects.put)
    def put(self, *args: Any, **options: Any) -> SubjectDetails:
        """Make a subject, or change its settings, see `AsyncSubjects.put`.

        Example: `client.subjects.put("orders", quota={"rate": 1000}, ttl=7 * 86400)`
        """
        return self._thread.run(self._subjects.put(*args, **options))

    def purge(self, subject: str, reason: str = "") -> Deletion:
        """Delete all messages of a subject for good; it stays, with its durables and producers. While the answer is
        not `done`, call again to go on.

        Example: `client.subjects.purge("orders", "the customer left")`
        """
        return self._thread.run(self._subjects.purge(subject, reason))

    def delete(self, subject: str) -> None:
        """Delete a subject with all its messages, payloads and durables. There is no way back."""
        self._thread.run(self._subjects.delete(subject))


class DeadLetters:
    """Messages that a shared durable gave up on; `subject` is the one they came from.

    Example: `client.dead_letters.replay("orders")`
    """

    def __init__(self, thread: LoopThread, dead_letters: AsyncDeadLetters) -> None:
        self._thread = thread
        self._dead_letters = dead_letters

    def fetch(self, subject: str, *, start: Start = 1, limit: int = 100) -> Page:
        """A page of them; their headers `mts-dlq-...` tell where they came from, why, and how often they were tried."""
        return self._thread.run(self._dead_letters.fetch(subject, start=start, limit=limit))

    def replay(self, subject: str, sequences: Sequence[int] | None = None) -> int:
        """Publish them, or those of `sequences`, to their subject again; how many."""
        return self._thread.run(self._dead_letters.replay(subject, sequences))

    def purge(self, subject: str) -> int:
        """Delete them; how many."""
        return self._thread.run(self._dead_letters.purge(subject))
