"""Which web pages may call the API from a browser: an allow-list of origins, and never cookies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from minitoolstream.domain.errors import MtsError

_REQUEST_HEADERS = frozenset(
    {
        "accept",
        "authorization",
        "content-type",
        "idempotency-key",
        "if-none-match",
        "last-event-id",
        "x-request-id",
    }
)
_OUR_HEADER = re.compile(r"x-mts-[a-z0-9!#$%&'*+.^_`|~-]+")
Headers = Sequence[tuple[str, str]]
_EXPOSED = "x-request-id, retry-after"


class Cors:
    """`*` allows every origin; it has to be written down in the settings to have that effect."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.rstrip("/") for origin in origins)
        self._vary: Headers = [("vary", "origin")] if self._origins and not self._any else []

    def headers_for(self, origin: str | None) -> Headers:
        """What every answer carries, errors too: without them a page could not even read why it failed."""
        if origin is None or not (self._any or origin in self._origins):
            return self._vary
        allowed = "*" if self._any else origin
        return [("access-control-allow-origin", allowed), ("access-control-expose-headers", _EXPOSED), *self._vary]

    def preflight(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What answers a browser's question, with a 204; the origin's own header comes from `headers_for`."""
        if not self._any and headers.get("origin") not in self._origins:
            raise MtsError("forbidden", "this origin may not call the API; see `server.cors_origins`")
        wanted = [name.strip().lower() for name in headers.get("access-control-request-headers", "").split(",")]
        allowed = [name for name in wanted if name in _REQUEST_HEADERS or _OUR_HEADER.fullmatch(name)]
        answer = {
            "access-control-allow-methods": "GET, POST, PUT, DELETE",
            "access-control-max-age": "600",
        }
        if allowed:
            answer["access-control-allow-headers"] = ", ".join(allowed)
        return answer
