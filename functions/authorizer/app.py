"""API Gateway asks it before every route: who sends this token? The functions ask again themselves."""

from __future__ import annotations

import logging
from typing import Any

from minitoolstream import container
from minitoolstream.api.app import App, run
from minitoolstream.api.auth import BearerGuard, api_policy
from minitoolstream.domain.errors import MtsError

app = App("authorizer")
_log = logging.getLogger(__name__)


@app.lambda_function(name="authorize")
def authorize(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Anything but this answer, or this one word in an exception, would be a 500."""
    headers = {"authorization": str(event.get("authorizationToken", ""))}
    try:
        principal = run(
            container.current().check(
                lambda settings: BearerGuard(settings.secret("server.token"), "api").principal_of(headers)
            )
        )
    except MtsError as error:
        _log.info("refused: %s", error.code)
        if error.code != "unauthorized":
            raise
        raise Exception("Unauthorized") from None  # noqa: TRY002
    _log.info("allowed: %s", principal)
    return api_policy(principal, str(event["methodArn"]))
