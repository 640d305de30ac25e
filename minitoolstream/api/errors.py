"""The one table from error codes to HTTP and gRPC statuses, and the error's shape on the wire."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import msgspec

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.message import wire_number

if TYPE_CHECKING:
    from minitoolstream.api.app import Response

IPFS = "/pins"
"""Where the IPFS Pinning Service API begins, whose errors have a shape of their own."""
STATUSES: dict[str, tuple[int, str]] = {
    "bad_request": (400, "INVALID_ARGUMENT"),
    "codec_not_allowed": (400, "INVALID_ARGUMENT"),
    "unauthorized": (401, "UNAUTHENTICATED"),
    "forbidden": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "unknown_durable": (404, "NOT_FOUND"),
    "unknown_subject": (404, "NOT_FOUND"),
    "unknown_transaction": (404, "NOT_FOUND"),
    "method_not_allowed": (405, "UNIMPLEMENTED"),
    "request_timeout": (408, "DEADLINE_EXCEEDED"),
    "upload_conflict": (409, "FAILED_PRECONDITION"),
    "upload_incomplete": (409, "FAILED_PRECONDITION"),
    "seqno_skipped": (409, "FAILED_PRECONDITION"),
    "seqno_too_old": (409, "FAILED_PRECONDITION"),
    "seqno_in_use": (409, "FAILED_PRECONDITION"),
    "producer_fenced": (409, "FAILED_PRECONDITION"),
    "upload_final": (409, "FAILED_PRECONDITION"),
    "already_exists": (409, "ALREADY_EXISTS"),
    "mode_mismatch": (409, "FAILED_PRECONDITION"),
    "sessions_active": (409, "FAILED_PRECONDITION"),
    "session_fenced": (409, "FAILED_PRECONDITION"),
    "unknown_session": (409, "FAILED_PRECONDITION"),
    "partition_lost": (409, "FAILED_PRECONDITION"),
    "lease_lost": (409, "FAILED_PRECONDITION"),
    "version_conflict": (409, "ABORTED"),
    "stage_conflict": (409, "FAILED_PRECONDITION"),
    "beyond_end": (409, "OUT_OF_RANGE"),
    "position_moved": (409, "FAILED_PRECONDITION"),
    "producer_in_transaction": (409, "FAILED_PRECONDITION"),
    "transaction_ended": (409, "FAILED_PRECONDITION"),
    "transaction_conflict": (409, "ABORTED"),
    "recovery_conflict": (409, "FAILED_PRECONDITION"),
    "already_running": (409, "FAILED_PRECONDITION"),
    "inconsistent": (409, "FAILED_PRECONDITION"),
    "payload_missing": (410, "DATA_LOSS"),
    "payload_gone": (410, "DATA_LOSS"),
    "too_large": (413, "RESOURCE_EXHAUSTED"),
    "transaction_too_large": (413, "RESOURCE_EXHAUSTED"),
    "idempotency_conflict": (422, "INVALID_ARGUMENT"),
    "overloaded": (429, "RESOURCE_EXHAUSTED"),
    "quota_exceeded": (429, "RESOURCE_EXHAUSTED"),
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "internal": (500, "INTERNAL"),
    "not_configured": (500, "INTERNAL"),
    "bad_config": (500, "INTERNAL"),
    "cannot_write": (500, "INTERNAL"),
    "checksum_mismatch": (500, "INTERNAL"),
    "size_mismatch": (500, "INTERNAL"),
    "unavailable": (503, "UNAVAILABLE"),
}
"""For each code its HTTP status and the name of its gRPC status."""
HTTP_STATUS = {code: http for code, (http, _) in STATUSES.items()}
_WRONG_REQUEST = 1  # as the specification has it
_NOT_IN_ANSWERS = frozenset(
    {"UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL"}
)


def http_status(error: MtsError) -> int:
    return HTTP_STATUS.get(error.code, 500)


def grpc_status(error: MtsError) -> str:
    """The name of the gRPC status."""
    return STATUSES.get(error.code, (500, "INTERNAL"))[1]


def answer_code(error: MtsError) -> int | None:
    """The `status_code` of a gRPC answer for what is wrong with a request; None for what is no answer but a status."""
    if grpc_status(error) in _NOT_IN_ANSWERS:
        return None
    status = http_status(error)
    return _WRONG_REQUEST if status == 400 else status


def error_body(error: MtsError) -> dict[str, dict[str, object]]:
    return {"error": {"code": error.code, "message": error.message, "details": _shown(error.details)}}


def _shown(value: object) -> object:
    """Numbers of details as those of answers: most come from Tarantool, and may be sequences."""
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return wire_number(value) if isinstance(value, int) else value


def is_ipfs(path: str) -> bool:
    return f"{path}/".startswith(f"{IPFS}/")


def _ipfs_error_body(error: MtsError) -> dict[str, dict[str, str]]:
    return {"error": {"reason": error.code.upper(), "details": error.message}}


def error_response(error: MtsError, path: str = "") -> Response:
    """In the shape that clients of `path` know."""
    from minitoolstream.api.app import Response

    headers = {"content-type": "application/json"}
    if error.retryable:
        headers["retry-after"] = str(ceil(error.details.get("retry_after", 1)))
    if error.code == "unauthorized":
        headers["www-authenticate"] = 'Bearer realm="minitoolstream"'
    body = _ipfs_error_body(error) if is_ipfs(path) else error_body(error)
    return Response(msgspec.json.encode(body), http_status(error), headers)
