"""The one place where a request gets its principal."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from minitoolstream.domain.errors import MtsError

_SHORT_TOKEN = 16


class BearerGuard:
    """Knows one token and who holds it."""

    def __init__(self, token: str, principal: str) -> None:
        if not token or token.split() != [token]:
            raise MtsError("not_configured", f"the token of `{principal}` must be one word")
        self._token = token.encode()
        self._principal = principal

    @property
    def is_short(self) -> bool:
        return len(self._token) < _SHORT_TOKEN

    def principal_of(self, headers: Mapping[str, str]) -> str:
        """Who sends this; MtsError `unauthorized` for a missing or wrong token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise MtsError(
                "unauthorized",
                "send `Authorization: Bearer <token>`; on the host's machine `mts token` prints it",
            )
        if not hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token):
            raise MtsError("unauthorized", "the bearer token is wrong")
        return self._principal
