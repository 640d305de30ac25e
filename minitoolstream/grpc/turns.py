"""What only one call may do at a time, whichever worker it came to."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from minitoolstream.services.share_work import Queues

_LOOK_AGAIN = 0.02


class Turns:
    """One at a time for each name. Make it before the workers are forked: it is a file that they all have open, and a
    byte of it for each name, locked by the worker whose turn it is. What a worker that dies has locked is free."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the workers live
        self._here = Queues()  # such locks keep out other processes, not other calls of this one

    @asynccontextmanager
    async def turn(self, *name: str) -> AsyncIterator[None]:
        digest = hashlib.sha256("\0".join(name).encode()).digest()
        byte = int.from_bytes(digest[:7], "big")
        async with self._here.turn(byte):
            while not self._is_locked(byte):  # noqa: ASYNC110 - no event tells what another process does
                await asyncio.sleep(_LOOK_AGAIN)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def _is_locked(self, byte: int) -> bool:
        """By us, from now on."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):  # which of them is the system's choice
            return False
        return True
