"""Reading in the specification's words."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from minitoolstream.connector._builder import Builder
from minitoolstream.connector._types import AnyHandler, Message, SubscriptionStatus, handled_by
from minitoolstream.connector._wires import Options, egress_wire
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.limits import MAX_FETCH_LIMIT

BATCH_SIZE = 10
POLL_INTERVAL = 1.0
_log = logging.getLogger(__name__)


class Subscriber:
    """Gives the messages of subjects to handlers, each subject in a thread of its own, in order.

    The server keeps the durable's position, which moves behind what was handled: each message is handled at least
    once. A handler that raises gets the same message again after `poll_interval` seconds. A server that goes away is
    waited for.

    Example:
        subscriber = Subscriber("localhost:50052", "my-service")
        subscriber.register_handler("logs.application", lambda message: print(message.data))
        subscriber.start()
        subscriber.wait()
    """

    def __init__(
        self,
        server_addr: str,
        durable_name: str,
        *,
        batch_size: int = BATCH_SIZE,
        poll_interval: float = POLL_INTERVAL,
        options: Options | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        if batch_size < 1 or poll_interval < 0:
            raise bad_request("batch_size is at least 1, and poll_interval is not negative")
        self._wire = egress_wire(server_addr, options or Options(), poll_interval)
        self._durable = durable_name
        self._batch_size = min(batch_size, MAX_FETCH_LIMIT)
        self._pause = poll_interval
        self._log = logger or _log
        self._handlers: dict[str, Callable[[Message], object]] = {}
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def register_handler(self, subject: str, handler: AnyHandler) -> None:
        """`handler` has a method `handle`, or is a function of a message."""
        if self._threads:
            raise MtsError("bad_request", "handlers are registered before `start`")
        self._handlers[subject] = handled_by(handler)

    def register_handlers(self, handlers: Mapping[str, AnyHandler]) -> None:
        for subject, handler in handlers.items():
            self.register_handler(subject, handler)

    def start(self) -> None:
        """Begin to read; returns at once."""
        if self._threads or self._stop.is_set():
            raise MtsError("already_running", "a subscriber starts once")
        if not self._handlers:
            raise MtsError("bad_request", "register a handler first")
        for subject in self._handlers:
            thread = threading.Thread(target=self._run, args=(subject,), name=f"mts {subject}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, subject: str) -> None:
        handler = self._handlers[subject]

        def handle(message: Message) -> bool:
            while not self._stop.is_set():
                try:
                    handler(message)
                    return True
                except Exception:
                    self._log.exception("the handler of %s failed at message %d", subject, message.sequence)
                self._stop.wait(self._pause)
            return False

        try:
            self._wire.follow(subject, self._durable, self._batch_size, handle, self._stop)
        except BaseException as failure:
            if not self._stop.is_set():
                self._log.error("reading %s has ended: %s", subject, failure)
                self._failure = self._failure or failure
                self.stop()

    def stop(self) -> None:
        """End after the messages that are being handled; `wait` tells when that is."""
        self._stop.set()
        self._wire.wake()

    def wait(self) -> None:
        """Until it was stopped and has ended; raises what ended it, if that was no `stop`."""
        for thread in self._threads:
            thread.join()
        self._wire.close()
        if self._failure is not None:
            raise self._failure

    def status(self) -> list[SubscriptionStatus]:
        """How far each subject is."""
        return [self._wire.status(subject, self._durable) for subject in self._handlers]

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.wait()


class SubscriberBuilder(Builder):
    """Example: `SubscriberBuilder("localhost:50052", "my-service").with_batch_size(50).build()`"""

    def __init__(self, server_addr: str, durable_name: str) -> None:
        super().__init__(server_addr)
        self._durable = durable_name
        self._batch_size = BATCH_SIZE
        self._poll_interval = POLL_INTERVAL

    def with_batch_size(self, size: int) -> Self:
        """How many messages are brought at once."""
        self._batch_size = size
        return self

    def with_poll_interval(self, seconds: float) -> Self:
        """How long to wait before a failed read, or a failed message, is tried again."""
        self._poll_interval = seconds
        return self

    def build(self) -> Subscriber:
        return Subscriber(
            self._address,
            self._durable,
            batch_size=self._batch_size,
            poll_interval=self._poll_interval,
            options=self._options,
            logger=self._logger,
        )
