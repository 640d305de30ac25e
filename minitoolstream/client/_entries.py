"""Messages on their way through a subscription, and what of them may be acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any
from weakref import ReferenceType

from minitoolstream.client._types import Message
from minitoolstream.domain.errors import MtsError


class Stage(Enum):
    """Where a message of a subscription is."""

    WAITING = auto()
    HANDED = auto()
    IN_TRANSACTION = auto()
    DONE = auto()
    LOST = auto()  # its lease or partition is another reader's now


class Pack:
    """The payloads of an extent, fetched together when the first of them is wanted."""

    def __init__(self, load: Callable[[], Coroutine[Any, Any, list[Message]]]) -> None:
        self._load = load
        self._task: asyncio.Task[list[Message]] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._load())
            self._task.add_done_callback(_look)

    def now(self, index: int) -> bytes | None:
        """The payload if it is here; from any thread."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception():
            return None
        return task.result()[index].data

    async def get(self, index: int) -> bytes | None:
        self.start()
        assert self._task is not None
        return (await asyncio.shield(self._task))[index].data

    def cancel(self) -> None:
        if self._task:
            self._task.cancel()


@dataclass(slots=True)
class Payload:
    """What is stored of a message: here (`stored`), on its way (`coming`, or in a pack), or still in the store."""

    stored: bytes | None = None
    coming: asyncio.Task[bytes] | None = None
    pack: Pack | None = None
    index: int = 0

    def fetch(self, load: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        """Ahead of time, alone or with its pack."""
        if self.pack is not None:
            self.pack.start()
        elif self.stored is None:
            self.coming = asyncio.create_task(load())
            self.coming.add_done_callback(_look)

    def cancel(self) -> None:
        if self.pack is not None:
            self.pack.cancel()
        if self.coming is not None:
            self.coming.cancel()

    def now(self) -> bytes | None:
        """What is here; from any thread."""
        if self.stored is None and self.pack is not None:
            self.stored = self.pack.now(self.index)
        return self.stored

    async def arrived(self) -> bytes | None:
        """The same when what is on its way has come; None when nothing is, or it failed."""
        if self.now() is None:
            with contextlib.suppress(MtsError):  # what failed ahead of time is tried again by who needs it
                if self.coming is not None:
                    self.stored = await asyncio.shield(self.coming)
                elif self.pack is not None:
                    self.stored = await self.pack.get(self.index)
        return self.stored


def _look(task: asyncio.Task[Any]) -> None:
    """A failure is met when the payload is asked for."""
    if not task.cancelled():
        task.exception()


@dataclass(slots=True, eq=False)
class Entry:
    """One message; `ticket` is what its ack has to show: a lease's id, or the fence of its durable or partition.

    Whoever gets the message takes its `payload`: entries live until the host knows of their acks, and must be small.
    """

    message: Message
    ticket: str | int | None = None
    deliveries: int = 1
    stage: Stage = Stage.WAITING
    loss: MtsError | None = None
    unsure: bool = False
    """An ack of it was sent, and may have counted."""
    holder: ReferenceType[object] | None = None
    """The delivery that was made of it."""
    payload: Payload = field(default_factory=Payload)
    cost: int = 0

    def __post_init__(self) -> None:
        if self.message.data is not None:
            self.payload.stored = self.message.data
            self.message = replace(self.message, data=None)

    def take_payload(self) -> Payload:
        payload, self.payload = self.payload, Payload()
        return payload

    @property
    def sequence(self) -> int:
        return self.message.sequence

    @property
    def settled(self) -> bool:
        return self.stage in (Stage.DONE, Stage.LOST)

    def lose(self, error: MtsError) -> None:
        """Whatever was done with it, no ack of it counts any more."""
        self.stage, self.loss = Stage.LOST, error


class Ledger:
    """What was read in order (of a subject, or of one of its partitions) and is not acked yet."""

    def __init__(self, position: int, fence: int = 0) -> None:
        self.acked = position
        self.read_to = position
        self.fence = fence
        self._open: deque[Entry] = deque()

    def add(self, entry: Entry) -> None:
        self._open.append(entry)
        self.read_to = max(self.read_to, entry.sequence)

    def pass_over(self, sequence: int) -> None:
        """A filter left out the rest up to here, which counts as read."""
        self.read_to = max(self.read_to, sequence)

    @property
    def to_ack(self) -> int | None:
        """Everything up to here is done, and the host does not know all of it yet."""
        floor = self.acked
        for entry in self._open:
            if not entry.settled:
                break
            floor = entry.sequence
        else:
            floor = max(floor, self.read_to)
        return floor if floor > self.acked else None

    def confirm(self, position: int) -> None:
        """The host knows that everything up to here is done."""
        self.acked = max(self.acked, position)
        while self._open and self._open[0].sequence <= self.acked:
            self._open.popleft()

    def in_hand_before(self, sequence: int) -> bool:
        """Whether something that was read before it is being handled."""
        return any(entry.sequence < sequence and entry.stage is Stage.HANDED for entry in self._open)

    def done_up_to(self, sequence: int) -> None:
        """An ack is cumulative: what was handed out before it is done too."""
        for entry in self._open:
            if entry.sequence > sequence:
                return
            if entry.stage is Stage.HANDED:
                entry.stage = Stage.DONE

    def lose(self, error: MtsError) -> None:
        for entry in self._open:
            entry.lose(error)
        self._open.clear()
