"""What publishers and subscribers take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from minitoolstream.domain.errors import MtsError


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that is ready to go: bytes in memory, or a file that is read as it is sent."""

    subject: str
    data: bytes | Path
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Where a message went; or the `error` that kept it from going."""

    sequence: int = 0
    object_name: str = ""
    error: MtsError | None = None


class ResultHandler(Protocol):
    """Is told of each message, in the thread that publishes."""

    def on_success(self, sequence: int, object_name: str) -> None: ...

    def on_error(self, error: MtsError) -> None: ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message as handlers get it; its payload is in memory."""

    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    created_at: int


class MessageHandler(Protocol):
    """One that raises gets the same message again."""

    def handle(self, message: Message) -> object: ...


AnyHandler = MessageHandler | Callable[[Message], object]


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """How far a subscription is: `messages_lag` messages are not handled yet."""

    subject: str
    current_sequence: int
    latest_sequence: int
    messages_lag: int


def handled_by(handler: AnyHandler) -> Callable[[Message], object]:
    """The function to call: a handler's `handle`, or the handler itself."""
    method: Callable[[Message], object] | None = getattr(handler, "handle", None)
    if method is not None:
        return method
    if not callable(handler):
        raise MtsError("bad_request", f"a handler has a method `handle`, or is a function; {handler!r} is neither")
    return handler
