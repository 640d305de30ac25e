"""The one error type. Adapters translate foreign errors into it, the API maps its code to a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MtsError(Exception):
    """Something a caller can act on.

    `code` is stable and machine-readable, `message` says what to do next, `retryable` says whether the
    same request may succeed later without a change.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.retryable = code in RETRYABLE if retryable is None else retryable

    def __repr__(self) -> str:
        return f"MtsError({self.code!r}, {self.message!r})"


RETRYABLE = frozenset({"unavailable", "timeout", "overloaded", "rate_limited"})


def bad_request(message: str, **details: Any) -> MtsError:
    """The request itself is wrong; nothing was changed."""
    return MtsError("bad_request", message, details)


def not_found(message: str, **details: Any) -> MtsError:
    return MtsError("not_found", message, details)


def unavailable(message: str, **details: Any) -> MtsError:
    """A part we need does not answer now. The outcome may be unknown; the same request may be sent again."""
    return MtsError("unavailable", message, details)


def no_driver() -> MtsError:
    return MtsError("not_configured", "the driver of Cassandra is not installed: pip install 'minitoolstream[catalog]'")
