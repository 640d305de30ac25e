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
_LOOKS = 15
log = logging.getLogger("mts.webhook")


class Webhook:
    """Hands each event to the function; what takes longer than the store may wait goes on afterwards."""

    def __init__(self, handle_event: EventHandler, answer_within: float = ANSWER_WITHIN) -> None:
        self._handle_event = handle_event
        self._limits = _Limits(answer_within)
        self._deferred: set[asyncio.Task[dict[str, Any]]] = set()

    async def object_created(self, request: Request) -> Response:
        """200 for every event that will never get better by being sent again, the bad ones too."""
        event = read_event_body(request.body)
        limit = self._limits.begin()
        try:
            return answer(await self._handle_event(request.core, event, request.request_id))
        except asyncio.CancelledError:
            if not limit.is_why:
                raise
            self._defer(request, event)
            return answer({"deferred": True})
        except MtsError as error:
            if error.retryable:
                log.warning("an event waits for the reconciler: %s", error.message)
                return error_response(error)
            return self._reject(request, error.code)
        except Exception:
            log.exception("an event failed")
            return self._reject(request, "internal")
        finally:
            self._limits.end(limit)

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


class _Limit:
    __slots__ = ("at", "has_passed", "task")

    def __init__(self, task: asyncio.Task[Any], at: float) -> None:
        self.task = task
        self.at = at
        self.has_passed = False

    @property
    def is_why(self) -> bool:
        """Whether the limit alone cancelled the task, and not who stops the host as well."""
        return self.has_passed and self.task.cancelling() == 1


class _Limits:
    """Cancels what takes too long, by one timer that looks a few times within that: a timer for each event, as
    `asyncio.timeout` sets it, takes a tenth of the CPU of a commit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[_Limit, None] = {}  # the oldest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = False

    def begin(self) -> _Limit:
        loop = self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        limit = _Limit(task, loop.time() + self._seconds)
        self._running[limit] = None
        self._look_later(loop)
        return limit

    def end(self, limit: _Limit) -> None:
        self._running.pop(limit, None)
        if limit.has_passed:
            limit.task.uncancel()

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._looks:
            self._looks = True
            loop.call_later(self._seconds / _LOOKS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks = False
        while self._running and (limit := next(iter(self._running))).at <= loop.time():
            del self._running[limit]
            limit.has_passed = True
            limit.task.cancel()
        if self._running:
            self._look_later(loop)


def read_event_body(body: bytes | str) -> Any:
    """The event; None for what is no JSON, which the function records as malformed like any other bad event."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _log_late_failure(task: asyncio.Task[dict[str, Any]]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.warning("a deferred event waits for the reconciler: %r", error)
