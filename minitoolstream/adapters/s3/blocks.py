"""Large objects for ordinary code, block by block.

`net.http1` copies a body three times on its way: out of the kernel, out of the parser, and together. Of small payloads
nobody notices; of hundreds of MiB it is half the time. So here it is `http.client`, which reads into the block that it
gives. A request is sent at once: its answer comes into the socket's buffer while the caller reads another.
"""

from __future__ import annotations

import http.client
import random
import re
import ssl
import time
from collections.abc import Generator, Iterator
from contextlib import closing

from minitoolstream.adapters.s3.requests import JITTER, SILENCE, URL_LIFE, problem_of
from minitoolstream.adapters.s3.signer import range_header, sigv4_of
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.adapters.s3.xml import error_code
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, unavailable

BLOCK = 1024 * 1024
"""About what a core's own cache holds: whoever looks at a block finds most of it there. Smaller ones cost more calls
than that saves."""
_TOTAL = re.compile(r"bytes \d+-\d+/(\d+)\Z")


class S3Blocks:
    """Fulfils `ports.BlockReader`. A connection a call: threads may share it."""

    def __init__(self, sigv4: SigV4) -> None:
        self._sigv4 = sigv4

    @classmethod
    def from_settings(cls, settings: Settings) -> S3Blocks:
        return cls(sigv4_of(settings, settings["minio.endpoint"]))

    def blocks(self, name: str, first: int, last: int, *, size: int | None = None) -> Generator[bytes]:
        found = self._blocks(name, first, last, size)
        next(found, None)  # up to where the request is sent
        return found

    def _blocks(self, name: str, first: int, last: int, size: int | None) -> Generator[bytes]:
        begun = failed = False
        while first <= last:
            try:
                with closing(self._sent(name, first, last)) as connection:
                    if not begun:
                        begun = True
                        yield b""
                    for block in self._answer(connection, first, last, size):
                        first += len(block)
                        failed = False
                        yield block
            except MtsError as error:
                # Objects never change: a transfer that broke goes on where it stood.
                if failed or not error.retryable:
                    raise
                failed = True
                time.sleep(random.uniform(*JITTER))  # noqa: S311  # nosec B311

    def _sent(self, name: str, first: int, last: int) -> http.client.HTTPConnection:
        headers = {"Range": range_header(first, last)}
        url = self._sigv4.presign("GET", name, expires_in=URL_LIFE, headers=headers)
        connection = self._connection()
        try:
            connection.request("GET", url.removeprefix(self._sigv4.origin), headers=headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unanswered(error) from error
        return connection

    def _answer(
        self, connection: http.client.HTTPConnection, first: int, last: int, size: int | None
    ) -> Iterator[bytes]:
        left = last - first + 1
        try:
            response = connection.getresponse()
            self._check(response, last, size)
            while left and (block := response.read(min(BLOCK, left))):
                left -= len(block)
                yield block
        except (OSError, http.client.HTTPException) as error:
            raise self._unanswered(error) from error
        if left:
            raise unavailable(f"the object store does not answer: {self._sigv4.host} ended its answer too early")

    def _unanswered(self, error: Exception) -> MtsError:
        told = error.strerror if isinstance(error, OSError) else None
        return unavailable(f"the object store does not answer: {self._sigv4.host}: {told or type(error).__name__}")

    def _check(self, response: http.client.HTTPResponse, last: int, size: int | None) -> None:
        total = _TOTAL.match(response.headers.get("content-range", ""))
        if response.status == 206 and total is not None:
            if size is not None and int(total[1]) != size:
                raise MtsError("size_mismatch", f"the object has not {size} bytes")
            if int(total[1]) <= last:
                raise MtsError("payload_missing", "the object is shorter than its message")
            return
        if response.status == 416 and size is not None:
            raise MtsError("size_mismatch", f"the object has not {size} bytes")
        raise problem_of(self._sigv4.bucket, response.status, error_code(response.read(BLOCK)))

    def _connection(self) -> http.client.HTTPConnection:
        if self._sigv4.origin.startswith("https:"):
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._sigv4.host, timeout=SILENCE, context=context)
        return http.client.HTTPConnection(self._sigv4.host, timeout=SILENCE)
