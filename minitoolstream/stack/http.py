"""Small questions to the host and the store, as a health check asks them: no retries, no waiting, no exception."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """`status` is 0 when nobody answered; `body` is the decoded JSON, or None."""

    status: int
    body: Any = None


def ask(url: str, *, token: str | None = None, timeout: float = 3.0) -> Answer:
    request = urllib.request.Request(url)  # noqa: S310
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        # The address is one of the stack's; a proxy of the environment must not see it.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=timeout) as answer:
            return Answer(answer.status, _decoded(answer.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _decoded(error.read()))
    except (OSError, ValueError):
        return Answer(0)


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None
