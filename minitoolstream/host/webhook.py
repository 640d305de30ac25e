"""The object store's events by webhook: answered in time whatever happens, a producer's PUT waits for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from minitoolstream.api.app import Request, Response, answer
from minitoolstream.api.errors import error_response
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.functions import EventHandler

PATH = "/hooks/object-created"
ANSWER_WITHIN = 1.5
log = logging.getLogger("mts.webhook")


class Webhook:
    """Hands each event to the function; what takes longer than the store may wait goes on afterwards."""

    def __init__(self, handle_event: EventHandler, answer_within: float = ANSWER_WITHIN) -> None:
        self._handle_event = handle_event
        self._answer_within = answer_within
        self._deferred: set[asyncio.Task[dict[str, Any]]] = set()

    async def object_created(self, request: Request) -> Response:
        """200 for every event that will never get better by being sent again, the bad ones too."""
        event = read_event_body(request.body)
        limit = asyncio.timeout(self._answer_within)
        try:
            async with limit:
                return answer(await self._handle_event(request.core, event, request.request_id))
        except MtsError as error:
            if error.retryable:
                log.warning("an event waits for the reconciler: %s", error.message)
                return error_response(error)
            return self._reject(request, error.code)
        except Exception:
            if limit.expired():
                self._defer(request, event)
                return answer({"deferred": True})
            log.exception("an event failed")
            return self._reject(request, "internal")

    def _defer(self, request: Request, event: Any) -> None:
        """Begin again behind the answer: an event may come twice anyway, and a task for each would cost the many
        that are in time."""
        task = asyncio.ensure_future(self._handle_event(request.core, event, request.request_id))
        self._deferred.add(task)
        task.add_done_callback(self._deferred.discard)
        task.add_done_callback(_log_late_failure)

    async def finish(self, seconds: float) -> None:
        """Wait for what still runs behind its answer."""
        if self._deferred:
            await asyncio.wait(self._deferred, timeout=seconds)

    def _reject(self, request: Request, reason: str) -> Response:
        request.core.metrics.rejected(reason)
        log.warning("an event was rejected: %s", reason)
        return answer({"rejected": reason})


def read_event_body(body: bytes | str) -> Any:
    """The event; None for what is no JSON, which the function records as malformed like any other bad event."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _log_late_failure(task: asyncio.Task[dict[str, Any]]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.warning("a deferred event waits for the reconciler: %r", error)
