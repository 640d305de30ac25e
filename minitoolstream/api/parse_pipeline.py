"""Requests about the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from minitoolstream.api import schema_pipeline as schema
from minitoolstream.api.app import Request
from minitoolstream.api.parse import decode, limit_of, number_of
from minitoolstream.domain import tracking
from minitoolstream.domain.consumer import read_time
from minitoolstream.domain.errors import bad_request
from minitoolstream.ports import QueuePlace

_LARGEST_OFFSET = 2**31 - 1


def register_of(request: Request) -> tuple[str, tuple[int, ...]]:
    body = decode(request.body, schema.RegisterRequest)
    return tracking.check_filename(body.filename), tracking.check_shards(body.shards)


def ingest_of(request: Request) -> str:
    return tracking.check_filename(decode(request.body, schema.IngestRequest).filename)


def stage_of(request: Request, transition: str | None = None) -> str:
    return tracking.check_stage(request.params["stage"], transition)


def transition_of(request: Request) -> tuple[str, str]:
    """Stage and transition, which are looked at before the body."""
    transition = tracking.check_transition(request.params["transition"])
    return stage_of(request, transition), transition


def stage_request_of(request: Request) -> schema.StageRequest:
    body = decode(request.body, schema.StageRequest)
    tracking.check_filename(body.filename)
    tracking.check_owner(body.owner)
    return body


def retry_of(request: Request) -> tuple[str, int]:
    body = decode(request.body, schema.RetryRequest)
    return tracking.check_filename(body.filename), body.shard


def filename_of(request: Request) -> str:
    return tracking.check_filename(request.params["filename"])


def before_of(query: Mapping[str, str]) -> str | None:
    return tracking.check_filename(query["before"]) if "before" in query else None


def place_of(query: Mapping[str, str]) -> QueuePlace:
    offset = number_of(query, "offset", 0, 0, _LARGEST_OFFSET)
    if offset and query.get("claim") == "true":
        raise bad_request("a claim takes the oldest: leave out offset", field="offset")
    return QueuePlace(limit_of(query), offset, _moment_of(query, "updated_before"))


def owner_of(query: Mapping[str, str]) -> str | None:
    return tracking.check_owner(query.get("owner"))


def lease_of(query: Mapping[str, str]) -> int | None:
    return number_of(query, "lease", 1, 1, tracking.MAX_TASK_LEASE) if "lease" in query else None


def _moment_of(query: Mapping[str, str], name: str) -> datetime | None:
    if name not in query:
        return None
    try:
        return datetime.fromtimestamp(read_time(query[name], name), UTC)
    except (ValueError, OverflowError, OSError):
        raise bad_request(f"{name}: the time is too far away", field=name) from None
