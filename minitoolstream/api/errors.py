"""The one table from error codes to HTTP statuses, and the error's shape on the wire."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import msgspec

from minitoolstream.domain.errors import MtsError

if TYPE_CHECKING:
    from minitoolstream.api.app import Response

HTTP_STATUS = {
    "bad_request": 400,
    "codec_not_allowed": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_durable": 404,
    "unknown_subject": 404,
    "unknown_transaction": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "upload_conflict": 409,
    "upload_incomplete": 409,
    "seqno_skipped": 409,
    "seqno_too_old": 409,
    "seqno_in_use": 409,
    "producer_fenced": 409,
    "upload_final": 409,
    "already_exists": 409,
    "mode_mismatch": 409,
    "sessions_active": 409,
    "session_fenced": 409,
    "unknown_session": 409,
    "partition_lost": 409,
    "lease_lost": 409,
    "beyond_end": 409,
    "position_moved": 409,
    "producer_in_transaction": 409,
    "transaction_ended": 409,
    "transaction_conflict": 409,
    "recovery_conflict": 409,
    "already_running": 409,
    "inconsistent": 409,
    "payload_missing": 410,
    "payload_gone": 410,
    "too_large": 413,
    "transaction_too_large": 413,
    "idempotency_conflict": 422,
    "overloaded": 429,
    "quota_exceeded": 429,
    "rate_limited": 429,
    "internal": 500,
    "not_configured": 500,
    "bad_config": 500,
    "checksum_mismatch": 500,
    "unavailable": 503,
}


def http_status(error: MtsError) -> int:
    return HTTP_STATUS.get(error.code, 500)


def error_body(error: MtsError) -> dict[str, dict[str, object]]:
    return {"error": {"code": error.code, "message": error.message, "details": error.details}}


def error_response(error: MtsError) -> Response:
    from minitoolstream.api.app import Response

    headers = {"content-type": "application/json"}
    if error.retryable:
        headers["retry-after"] = str(ceil(error.details.get("retry_after", 1)))
    if error.code == "unauthorized":
        headers["www-authenticate"] = 'Bearer realm="minitoolstream"'
    return Response(msgspec.json.encode(error_body(error)), http_status(error), headers)
