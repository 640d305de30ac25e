"""One at a time, across processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from minitoolstream.domain.errors import MtsError


@contextmanager
def locked(file: Path, *, waiting: Callable[[], None], timeout: float = 900) -> Iterator[None]:
    """Hold the lock; `waiting` is called once when another process has it.

    The kernel frees it when its holder dies, so it is never stale.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(handle, file, waiting, time.monotonic() + timeout)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, file: Path, waiting: Callable[[], None], deadline: float) -> None:
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                waiting()
                told = True
            if time.monotonic() > deadline:
                raise MtsError("timeout", f"another mts still holds {file}: wait for it to end") from None
            time.sleep(0.1)
