"""Requests about deletions."""

from __future__ import annotations

from minitoolstream.api.app import Request
from minitoolstream.api.parse import decode
from minitoolstream.api.schema_deletion import PurgeRequest
from minitoolstream.domain.deletion import check_reason
from minitoolstream.domain.subject import check_upload_id


def reason_of(request: Request) -> str:
    return check_reason(request.query.get("reason", ""))


def purge_reason_of(request: Request) -> str:
    return check_reason(decode(request.body, PurgeRequest).reason) if request.body else ""


def after_of(request: Request) -> str:
    """Ids of deletions are made like those of uploads."""
    after = request.query.get("after", "")
    return check_upload_id(after) if after else ""
