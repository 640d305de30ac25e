"""Handlers for many subjects in one process, with a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from minitoolstream.client._subscription import AsyncHandler, AsyncSubscription
from minitoolstream.client._subscription_sync import Handler, Subscription
from minitoolstream.domain.errors import bad_request

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_EVERY = 0.2
_H = TypeVar("_H")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A handler and what it is for; `options` are those of `subscribe`."""

    subject: str
    handler: Any
    concurrency: int
    retry_delay: float
    options: dict[str, Any]


class _Handlers:
    """What was registered with `on`."""

    def __init__(self) -> None:
        self._wanted: list[_Wanted] = []

    def _register(
        self, subject: str, concurrency: int, retry_delay: float, options: dict[str, Any]
    ) -> Callable[[_H], _H]:
        def register(handler: _H) -> _H:
            self._wanted.append(_Wanted(subject, handler, concurrency, retry_delay, options))
            return handler

        return register

    def _checked(self) -> list[_Wanted]:
        if not self._wanted:
            raise bad_request("no handler is registered: use @subscriber.on(subject)")
        return self._wanted


class AsyncSubscriber(_Handlers):
    """Handlers for subjects. `run` gives them their messages until `stop`, SIGTERM or SIGINT.

    A graceful stop lets the handlers that run come to their end, acks what they did, and gives the rest back. When
    the handler of an ordered subscription raises, that subscription ends without acking the message; the
    others go on, and `run` raises the error when all have ended.

    Example:
        subscriber = client.subscriber()

        @subscriber.on("orders", durable="billing", mode="shared", concurrency=4)
        async def handle(delivery):
            print(await delivery.data())

        await subscriber.run()
    """

    def __init__(self, subscribe: Callable[..., AsyncSubscription]) -> None:
        super().__init__()
        self._subscribe = subscribe
        self._running: list[AsyncSubscription] = []
        self._stopped = False

    def on(
        self, subject: str, *, concurrency: int = 1, retry_delay: float = 1.0, **options: Any
    ) -> Callable[[AsyncHandler], AsyncHandler]:
        """Register a handler; `options` are those of `subscribe`, the others those of its `run`."""
        return self._register(subject, concurrency, retry_delay, options)

    async def run(self) -> None:
        """Until stopped, or until every subscription has ended; raises the first error of one."""
        self._running = [self._subscribe(wanted.subject, **wanted.options) for wanted in self._checked()]
        if self._stopped:
            self.stop()
        with self._stopping_by_signal():
            outcomes = await asyncio.gather(
                *(
                    subscription.run(wanted.handler, concurrency=wanted.concurrency, retry_delay=wanted.retry_delay)
                    for subscription, wanted in zip(self._running, self._wanted, strict=True)
                ),
                return_exceptions=True,
            )
        _report(outcomes)

    @contextlib.contextmanager
    def _stopping_by_signal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def restore() -> None:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

        def stop() -> None:
            restore()  # a second signal does not wait for handlers
            self.stop()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            restore()

    def stop(self) -> None:
        """Hand out no more; `run` returns when the handlers have ended."""
        self._stopped = True
        for subscription in self._running:
            subscription.stop()


class Subscriber(_Handlers):
    """Handlers for subjects, in threads. `run` gives them their messages until `stop`, SIGTERM or SIGINT.

    The rest as of `AsyncSubscriber`.

    Example:
        subscriber = client.subscriber()

        @subscriber.on("orders", durable="billing", mode="shared", concurrency=4)
        def handle(delivery):
            print(delivery.data())

        subscriber.run()
    """

    def __init__(self, subscribe: Callable[..., Subscription]) -> None:
        super().__init__()
        self._subscribe = subscribe
        self._running: list[Subscription] = []
        self._stopped = False

    def on(
        self, subject: str, *, concurrency: int = 1, retry_delay: float = 1.0, **options: Any
    ) -> Callable[[Handler], Handler]:
        """Register a handler; `options` are those of `subscribe`, the others those of its `run`."""
        return self._register(subject, concurrency, retry_delay, options)

    def run(self) -> None:
        """Until stopped, or until every subscription has ended; raises the first error of one."""
        self._running = [self._subscribe(wanted.subject, **wanted.options) for wanted in self._checked()]
        outcomes: list[BaseException] = []

        def work(subscription: Subscription, wanted: _Wanted) -> None:
            try:
                subscription.run(wanted.handler, concurrency=wanted.concurrency, retry_delay=wanted.retry_delay)
            except BaseException as error:
                outcomes.append(error)

        threads = [
            threading.Thread(target=work, args=pair, name="mts-subscriber", daemon=True)
            for pair in zip(self._running, self._wanted, strict=True)
        ]
        with self._stopping_by_signal():
            if self._stopped:
                self.stop()
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a signal that comes just before a wait without end would not be seen
                    thread.join(_LOOK_EVERY)
        _report(outcomes)

    def stop(self) -> None:
        """Hand out no more; `run` returns when the handlers have ended. From any thread."""
        self._stopped = True
        for subscription in self._running:
            subscription.stop()

    @contextlib.contextmanager
    def _stopping_by_signal(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def stop(*_: object) -> None:
            restore()  # a second signal does not wait for handlers
            self.stop()

        for number in _SIGNALS:
            signal.signal(number, stop)
        try:
            yield
        finally:
            restore()


def _report(outcomes: list[BaseException | None] | list[BaseException]) -> None:
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for failure in failures[1:]:
        _log.error("another subscription failed: %s", failure)
    if failures:
        raise failures[0]
