"""The id of the request that the running task serves: in every log line, and sent along where others log."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
