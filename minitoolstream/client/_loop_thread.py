"""A private event loop in a thread, on which the sync client runs the async one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from minitoolstream.domain.errors import MtsError, bad_request

_T = TypeVar("_T")
_END: Any = object()
_CLOSE_SECONDS = 5.0


class LoopThread:
    """Starts with the first call. Calls may come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def _open_loop(self) -> Iterator[asyncio.AbstractEventLoop]:
        """The loop, which does not close as long as it is held: what is given to it comes before the end."""
        with self._lock:
            if self._closed:
                raise _closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="mts-client", daemon=True)
                self._thread.start()
            yield self._loop

    def call_soon(self, function: Callable[[], object]) -> None:
        with self._open_loop() as loop:
            loop.call_soon_threadsafe(function)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine. Ctrl-C in the waiting thread cancels it, closing makes it an error `closed`."""
        if threading.current_thread() is self._thread:
            work.close()
            raise bad_request("a progress function cannot wait for its client: it would wait for itself, for ever")
        try:
            with self._open_loop() as loop:
                future = asyncio.run_coroutine_threadsafe(work, loop)
        except MtsError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[_T, None]) -> Iterator[_T]:
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            with contextlib.suppress(MtsError):
                self.run(items.aclose())

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs, wait for it to tidy up, call `last`, end the thread. Idempotent."""
        with self._lock:
            if self._closed or self._loop is None or self._thread is None:
                self._closed = True
                return
            self._closed = True
        ending = asyncio.run_coroutine_threadsafe(_end(last), self._loop)
        with contextlib.suppress(TimeoutError):
            ending.result(_CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _closed() -> MtsError:
    return MtsError("closed", "this client is closed")


async def _next(items: AsyncGenerator[_T, None]) -> _T:
    return await anext(items, _END)


async def _end(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
