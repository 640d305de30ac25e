"""What an upload needs to go on after the process died: its id, in the user's state directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path

import msgspec

SUFFIX = ".mts-upload.json"
"""By which our files are known: the directory may be one that the caller uses for other things too."""
MAX_AGE = 8 * 86400
"""Seconds after which a state file is of no use: a ticket lives 7 days at most."""


class Remembered(msgspec.Struct, frozen=True):
    """An upload begun earlier. It is gone on with only while `facts` (of file and message) are the same."""

    upload_id: str
    multipart: bool
    facts: str


class ResumeSlot:
    """One file's place in the state directory, locked so that two processes never share an upload.

    Used as a context manager; `owned` is False while another process publishes the same file to the same
    subject: then nothing is remembered, and both publish on their own.
    """

    def __init__(self, folder: Path, *key: str) -> None:
        digest = hashlib.sha256(os.fsencode("\0".join(key))).hexdigest()  # a path need not be UTF-8
        self._path = folder / (digest[:32] + SUFFIX)
        self._file: int | None = None
        self.owned = False

    def __enter__(self) -> ResumeSlot:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old()
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # a read-only home: publish without the comfort
            return self
        self.owned = _lock(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        if self.owned and os.fstat(self._file).st_size == 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._file)  # which also unlocks it
        self._file = None
        self.owned = False

    def load(self) -> Remembered | None:
        if not self.owned or self._file is None:
            return None
        try:
            return msgspec.json.decode(os.pread(self._file, 1 << 16, 0), type=Remembered)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def save(self, remembered: Remembered) -> None:
        if self.owned and self._file is not None:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(remembered), 0)

    def forget(self) -> None:
        if self.owned and self._file is not None:
            os.ftruncate(self._file, 0)

    def _remove_old(self) -> None:
        oldest = time.time() - MAX_AGE
        for other in self._path.parent.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                if other.stat().st_mtime < oldest:
                    other.unlink()


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
