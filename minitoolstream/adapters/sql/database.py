"""What the SQL adapters need of a database: transactions in threads, and the few words in which databases differ.

Drivers here are synchronous. A transaction runs from its begin to its commit in one thread, with a connection that the
thread keeps; the event loop waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from minitoolstream.domain.errors import unavailable

T = TypeVar("T")
Row = tuple[Any, ...]


class Cursor(Protocol):
    """Of DB-API; parameters are written `%s`."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> object: ...

    def fetchall(self) -> Sequence[Row]: ...


class Dialect(Protocol):
    """`now` is an expression, `skip_locked` and `for_update` end a SELECT, `hint` follows a table's name."""

    now: str
    for_update: str
    skip_locked: str
    do_nothing: str

    def hint(self, index: str) -> str: ...


class Session(Protocol):
    """One connection, used by one thread."""

    def transaction(self, work: Callable[[Cursor], T]) -> T:
        """Begin, work, commit; rolled back when it fails. MtsError for every failure of the database."""

    def close(self) -> None: ...


class Database:
    """Sessions in at most `threads` threads, opened when they are first needed."""

    def __init__(self, open_session: Callable[[], Session], threads: int) -> None:
        self._open_session = open_session
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mts-sql")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._sessions: list[Session] = []

    async def transaction(self, work: Callable[[Cursor], T]) -> T:
        """What `work` returns. It may run more than once: it must do nothing but talk to the database."""
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._threads, self._run, work)
        except RuntimeError:
            raise unavailable("this process is closing its database") from None
        return await running

    def _run(self, work: Callable[[Cursor], T]) -> T:
        session: Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self._open_session()
            with self._lock:
                self._sessions.append(session)
        return session.transaction(work)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for session in self._sessions:
            session.close()
        self._sessions.clear()
