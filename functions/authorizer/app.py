"""What API Gateway needs beside the routes: who sends this token, which the functions ask again themselves; and what a
browser asks before a page of another origin may call a route."""

from __future__ import annotations

import logging
from typing import Any

from minitoolstream import container
from minitoolstream.api.app import App, Response, run, sent_headers
from minitoolstream.api.auth import BearerGuard, api_policy
from minitoolstream.api.cors import Cors
from minitoolstream.api.errors import error_response
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


@app.lambda_function(name="preflight")
def preflight(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answers OPTIONS of every path, for everybody: a browser sends no token with it."""
    headers = {str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()}
    cors = Cors(container.current().plain_settings()["server.cors_origins"])
    try:
        response = Response(b"", 204, cors.preflight(headers))
    except MtsError as error:
        response = error_response(error)
    _log.info("%d for %r", response.status, headers.get("origin"))
    request_id = event["requestContext"]["requestId"]
    sent = dict(sent_headers(response, request_id, cors.headers_for(headers.get("origin"))))
    return {"statusCode": response.status, "headers": sent, "body": response.body.decode()}
