"""Calls to the API: several addresses, the token, retries of what may be repeated, errors as MtsError."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from minitoolstream.api import schema
from minitoolstream.client._retry import RetryPolicy
from minitoolstream.domain.checks import fits_a_header
from minitoolstream.domain.errors import MtsError, bad_request
from minitoolstream.domain.pin import check_zones
from minitoolstream.net.addresses import is_http_url
from minitoolstream.net.http1 import HttpClient, HttpError, HttpResponse, HttpTimeout

_T = TypeVar("_T")
_CODE_OF_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    413: "too_large",
    429: "overloaded",
    502: "timeout",  # a proxy lost the host: the request may have reached it
    503: "unavailable",
    504: "timeout",
}
_MAY_HAVE_TAKEN_EFFECT = (502, 503, 504)


class Transport:
    """Talks to whichever of the hosts answers, and stays with it while it does."""

    def __init__(
        self,
        http: HttpClient,
        urls: Sequence[str],
        token: str,
        retry: RetryPolicy,
        waiting: HttpClient | None = None,
        *,
        region: str | None = None,
    ) -> None:
        if not urls:
            raise MtsError("not_configured", "no address of a host is known")
        if not fits_a_header(token):
            raise bad_request("token has a line break or another character that no token can have", field="token")
        self._http = http
        self._waiting = waiting or http  # long polls hold connections that other calls must not wait for
        self._closed = False
        self.retry = retry
        self.urls = tuple(_checked(url) for url in urls)
        self._authorization = {"authorization": f"Bearer {token}"} if token else {}
        if region is not None:
            self._authorization["x-mts-region"] = next(iter(check_zones([region], "region")))
        self._current = secrets.randbelow(len(self.urls))  # so that clients spread over the hosts

    @property
    def http(self) -> HttpClient:
        if self._closed:  # so that nobody tries again and again
            raise MtsError("closed", "this client is closed")
        return self._http

    def _client(self, waits: bool) -> HttpClient:
        return self.http if not waits or self._closed else self._waiting

    async def close(self) -> None:
        """Requests under way fail; there are no new ones."""
        self._closed = True
        await self._http.close()
        await self._waiting.close()

    async def call(
        self,
        method: str,
        path: str,
        answer: type[_T],
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        timeout: float | None = None,
        waits: bool = False,
    ) -> _T:
        """The decoded answer. `repeatable`: sending it twice has the effect of once; `waits`: for something to come."""
        response = await self.send(
            method, path, query=query, body=body, headers=headers, repeatable=repeatable, timeout=timeout, waits=waits
        )
        return decode(response, answer)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        timeout: float | None = None,
        waits: bool = False,
    ) -> HttpResponse:
        """The answer, 2xx; anything else is an MtsError after the retries it deserves. Its details say `resent` when
        the same was sent before and may have taken effect then.
        """
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        sent_headers = {**self._authorization, **(headers or {})}
        backoff = self.retry.start()
        failures = 0
        resent = False
        while True:
            index = self._current
            pause = 0.0
            try:
                response = await self._client(waits).request(
                    method,
                    self.urls[index] + target,
                    headers=sent_headers,
                    body=body,
                    timeout=timeout,
                    retry_stale=repeatable,
                )
            except HttpError as problem:
                error = self._no_answer(problem, repeatable)
                resent = resent or problem.sent
            else:
                if response.status < 400:
                    return response
                error = error_of(response)
                if resent or response.resent:
                    error.details["resent"] = True
                resent = resent or response.status in _MAY_HAVE_TAKEN_EFFECT
                # A 503 may have taken effect, a 429 has not.
                error.retryable = error.retryable and (repeatable or response.status == 429)
                pause = float(error.details.get("retry_after", 0))
            if not error.retryable:
                raise error
            if index == self._current:  # another task may have moved on already
                self._current = (index + 1) % len(self.urls)
            failures += 1
            if failures % len(self.urls) == 0:
                await backoff.pause(error, at_least=pause)

    def _no_answer(self, problem: HttpError, repeatable: bool) -> MtsError:
        details = {"urls": list(self.urls)}
        if problem.sent and not repeatable:
            return MtsError(
                "outcome_unknown",
                f"the connection broke after the request was sent, the outcome is unknown ({problem})",
                {**details, "hint": "publish with a producer_id, which makes a repeated call safe"},
            )
        if isinstance(problem, HttpTimeout) and problem.sent:
            return MtsError("timeout", f"no answer in time: {problem}", details)
        return MtsError("unreachable", f"cannot reach the host: {problem}", details, retryable=True)


def decode(response: HttpResponse, answer: type[_T]) -> _T:
    return _decoded(response, answer, strict=True)


def plain(response: HttpResponse, answer: type[_T]) -> _T:
    """An answer whose numbers may come as strings, as plain values."""
    return _decoded(response, answer, strict=False)


def _decoded(response: HttpResponse, answer: type[_T], *, strict: bool) -> _T:
    try:
        return msgspec.json.decode(response.body, type=answer, strict=strict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MtsError("internal", f"the answer is not what this version of the SDK expects: {error}") from None


def error_of(response: HttpResponse) -> MtsError:
    """The error an answer carries; one that is not ours (a proxy's) is known by its status."""
    try:
        shape = msgspec.json.decode(response.body, type=schema.Error).error
        code, message, details = shape.code, shape.message, dict(shape.details)
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = _CODE_OF_STATUS.get(response.status, "bad_request" if response.status < 500 else "internal")
        message, details = f"the host answered {response.status}", {}
    request_id = response.headers.get("x-request-id")
    if request_id:
        details["request_id"] = request_id
    wait = response.headers.get("retry-after", "")
    if wait.isdigit():
        details["retry_after"] = int(wait)
    retryable = response.status in (429, 502, 503, 504) and code != "quota_exceeded"  # that one does not pass by itself
    return MtsError(code, message, details, retryable=retryable)


def _checked(url: str) -> str:
    if not is_http_url(url):
        raise MtsError("bad_request", f"{url!r} is not an address such as http://127.0.0.1:8080", {"field": "url"})
    return url.rstrip("/")
