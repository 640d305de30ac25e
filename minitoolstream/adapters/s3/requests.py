"""Requests to the store, signed and sent; whatever goes wrong becomes an MtsError.

No URL, signature or message of the store gets into an error: they hold what grants access.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.adapters.s3.xml import error_code
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.net.http1 import HttpClient, HttpError, HttpResponse, HttpTimeout
from minitoolstream.ports import Metrics, NoMetrics

URL_LIFE = 15 * 60
"""Seconds that our own requests stay valid. A pack's PUT that is held up longer is refused by the store, so
that it can't appear after the reconciler looked for it."""
SILENCE = 30.0
JITTER = (0.05, 0.15)
_BUSY = frozenset({"SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "InternalError"})

_FULL = frozenset({"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})


class StoreSilent(MtsError):  # noqa: N818 - says what happened
    """The store took a request and then said nothing: it is stuck, or a running PUT holds the key's lock."""


class Advice(NamedTuple):
    """What to look at when a store refuses us."""

    bucket: str = "make it (`mts up` does), or set minio.bucket"
    keys: str = "minio.access_key, minio.secret_key"


OWN_BUCKET = Advice()


class S3Requests:
    """Sends to one bucket. `retry`: the request only reads, so a passing fault is tried once more."""

    def __init__(
        self, http: HttpClient, sigv4: SigV4, metrics: Metrics | None = None, advice: Advice = OWN_BUCKET
    ) -> None:
        self._http = http
        self._advice = advice
        self._sigv4 = sigv4
        self._metrics = metrics or NoMetrics()

    async def send(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Sequence[bytes] = b"",
        accept: Collection[int] = (200, 204, 206),
        retry: bool = False,
        retry_stale: bool | None = None,
        timeout: float = SILENCE,
    ) -> HttpResponse:
        """The answer when its status is one of `accept`, else an MtsError."""
        for last_try in (False, True) if retry else (True,):
            url = self._sigv4.presign(method, name, expires_in=URL_LIFE, query=query, headers=headers)
            try:
                response = await self._http.request(
                    method, url, headers=headers, body=body, timeout=timeout, retry_stale=retry_stale
                )
            except HttpError as error:
                self._metrics.operation("minio", method.lower(), "unavailable")
                if last_try or isinstance(error, HttpTimeout):
                    raise _unanswered(error) from error
            else:
                if response.status in accept:
                    self._metrics.operation("minio", method.lower(), "ok")
                    return response
                problem = self.problem(response.status, error_code(response.body))
                self._metrics.operation("minio", method.lower(), problem.code)
                if last_try or not problem.retryable or response.status == 403:
                    raise problem
            await asyncio.sleep(random.uniform(*JITTER))  # noqa: S311  # nosec B311
        raise AssertionError("unreachable")

    def problem(self, status: int, code: str) -> MtsError:
        return problem_of(self._sigv4.bucket, status, code, self._advice)


def problem_of(bucket: str, status: int, code: str, advice: Advice = OWN_BUCKET) -> MtsError:
    """What a status that was not expected means; `code` is the one in the body."""
    said = f"{status} {code}".strip()
    if status == 403:
        return unavailable(
            f"the object store refused our credentials, or its bucket policy did ({said}): "
            f"check {advice.keys}, the policy and the clocks"
        )
    if code == "NoSuchBucket":
        return unavailable(f"the bucket {bucket} does not exist: {advice.bucket}")
    if status == 404:
        return MtsError("payload_missing", f"the object store does not have the object ({said})")
    if status == 416:
        return MtsError("payload_missing", "the object is shorter than its message")
    if status == 412:
        return MtsError("already_exists", "an object of this name exists already")
    if status == 507 or code in _FULL:
        return unavailable(f"the object store is full ({said})", full=True)
    if status >= 500 or status in (408, 409, 429) or code in _BUSY:
        return unavailable(f"the object store cannot serve requests now ({said})")
    return MtsError("internal", f"the object store refused a request ({said})")


def _unanswered(error: HttpError) -> MtsError:
    kind = StoreSilent if isinstance(error, HttpTimeout) and error.sent else MtsError
    return kind("unavailable", f"the object store does not answer: {error}")
