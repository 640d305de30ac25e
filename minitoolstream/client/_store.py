"""The object store as the SDK meets it: presigned URLs, answers in XML."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

from minitoolstream.domain.errors import MtsError
from minitoolstream.net.http1 import HttpError

STORE_TIMEOUT = 90.0
"""Seconds of silence. A PUT is answered after the event was: the store itself waits 60 s for that."""
ALREADY_THERE = 412
URL_REFUSED = 403

_CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,500})</Message>")
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"}

ProgressCallback = Callable[[int, int], None]
"""Called with the bytes done so far and the bytes in total."""


def store_error(status: int, body: bytes) -> MtsError:
    """What the store's answer means to the caller; its own code is kept in the details."""
    store_code = _text(_CODE, body)
    message = _text(_MESSAGE, body) or f"status {status}"
    details = {"status": status, "store_code": store_code}
    if status in (429, 500, 502, 503, 504):
        return MtsError("unavailable", f"the object store cannot serve now: {message}", details)
    if store_code in _DAMAGED:
        return MtsError("checksum_mismatch", f"the object store refused the payload: {message}", details)
    if status == 404:
        return MtsError("payload_missing", f"the object store no longer has it: {message}", details)
    code = "forbidden" if status == URL_REFUSED else "bad_request"
    return MtsError(code, f"the object store refused the request: {message}", details)


def store_unreachable(problem: HttpError) -> MtsError:
    return MtsError(
        "unavailable", f"cannot reach the object store: {problem}", {"hint": "`mts status` shows what runs"}
    )


class Progress:
    """Counts bytes over parallel and repeated transfers and reports the sum."""

    def __init__(self, total: int, callback: ProgressCallback | None) -> None:
        self._total = total
        self._done = 0
        self._callback = callback

    def add(self, count: int) -> None:
        self._done += count
        if self._callback:
            self._callback(self._done, self._total)

    def reset(self) -> None:
        self.add(-self._done)

    def attempt(self) -> Attempt:
        return Attempt(self)


class Attempt:
    """One try of one transfer; `undo` takes its bytes back when it failed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0

    async def watch(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk
            self._count += len(chunk)
            self._progress.add(len(chunk))

    def undo(self) -> None:
        if self._count:
            self._progress.add(-self._count)
            self._count = 0


def _text(pattern: re.Pattern[bytes], body: bytes) -> str | None:
    found = pattern.search(body)
    return found[1].decode("utf-8", "replace") if found else None
