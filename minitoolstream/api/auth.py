"""The one place where a request gets its principal."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from minitoolstream.domain.errors import MtsError

CATALOG = "catalog"
"""The function that owners of pins may call with tokens of their own."""
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


class OwnersGuard:
    """Knows the host's token, and one for each owner of pins."""

    def __init__(self, host: BearerGuard, tokens: Mapping[str, str]) -> None:
        self._guards = [host, *(BearerGuard(token, owner) for owner, token in tokens.items())]

    def principal_of(self, headers: Mapping[str, str]) -> str:
        """All are compared: how long it takes tells nothing."""
        found: str | None = None
        problem: MtsError | None = None
        for guard in self._guards:
            try:
                found = guard.principal_of(headers)
            except MtsError as error:
                problem = error
        if found is None:
            assert problem is not None
            raise problem
        return found


class HostGuard:
    """Knows the host's token, and tells owners of pins that theirs is right and not for this."""

    def __init__(self, host: BearerGuard, tokens: Mapping[str, str]) -> None:
        self._host, self._owners = host, OwnersGuard(host, tokens)

    def principal_of(self, headers: Mapping[str, str]) -> str:
        try:
            return self._host.principal_of(headers)
        except MtsError:
            self._owners.principal_of(headers)
        raise MtsError("unauthorized", "an owner's token is for /v1/catalog and /pins alone: send the host's own")


def api_policy(principal: str, method_arn: str) -> dict[str, Any]:
    """An answer to API Gateway's authorizer: this caller may call all of the API's stage. API Gateway keeps it by the
    token, so it must hold for every route."""
    stage = "/".join(method_arn.split("/")[:2])
    allowed = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{stage}/*"}
    return {"principalId": principal, "policyDocument": {"Version": "2012-10-17", "Statement": [allowed]}}
