"""`mts fsck`: a check in a process of its own, so that it takes neither memory nor time of the hosts that serve."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from minitoolstream.bootstrap import open_core
from minitoolstream.config import Settings, user_state_dir
from minitoolstream.domain.consistency import Report
from minitoolstream.domain.errors import MtsError
from minitoolstream.services.check_consistency import Options, Progress, check_consistency
from minitoolstream.services.fsck_book import Book


def run_fsck(
    settings: Settings,
    progress: Progress,
    *,
    deep: bool,
    sample: int,
    repair: bool,
    go_on: bool,
    folder: Path | None = None,
) -> Report:
    """Check, and mend with `repair`. A check that was interrupted leaves its book; `go_on` goes on from it."""
    options = Options(deep, sample, repair)
    book_path = (folder or user_state_dir()) / f"fsck-{_name_of(settings)}.sqlite"
    with _alone(book_path):
        if not go_on:
            book_path.unlink(missing_ok=True)
        elif not book_path.exists():
            raise MtsError("bad_request", "there is no interrupted check to go on with: leave --continue out")
        try:
            return _with_book(Book(book_path), settings, options, progress)
        except sqlite3.Error as error:
            what = f"the check's own file {book_path} cannot be used: {error}"
            raise MtsError("cannot_write", what, {"hint": "without --continue it is made anew"}) from None


def _with_book(book: Book, settings: Settings, options: Options, progress: Progress) -> Report:
    try:
        report = asyncio.run(_check(settings, book, options, progress))
    except BaseException:
        book.close()
        raise
    book.delete()
    return report


def _name_of(settings: Settings) -> str:
    """A book belongs to one Tarantool and one bucket."""
    names = (settings["tarantool.address"], settings["minio.endpoint"], settings["minio.bucket"])
    return hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()[:12]


async def _check(settings: Settings, book: Book, options: Options, progress: Progress) -> Report:
    core = await open_core(settings)
    try:
        return await check_consistency(core, book, options, progress)
    finally:
        await core.close()


@contextmanager
def _alone(book_path: Path) -> Iterator[TextIO]:
    """Two checks would write into one book; the lock ends with the process."""
    book_path.parent.mkdir(parents=True, exist_ok=True)
    with book_path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MtsError(
                "already_running", "another check of the same store is running here: wait for it to end"
            ) from None
        yield lock
