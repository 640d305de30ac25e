"""The description tried against the real API: whatever is sent, the answer is one that was described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from minitoolstream.api.openapi import openapi
from minitoolstream.host.functions import load_functions
from tests.live import Live

schema = schemathesis.openapi.from_dict(openapi(load_functions().routes))


@schemathesis.serializer("application/x-ndjson", "application/vnd.mts.frames", "application/vnd.mts.message+json")
def as_it_is(_context: Any, value: Any) -> bytes:
    """Bytes and text as they are; all else as JSON, which is what a confused client would send."""
    from msgspec.json import encode

    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else encode(value)


@pytest.mark.filterwarnings("ignore")
@schema.parametrize()
@settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_described_one(live: Live, case: Any) -> None:
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
    if isinstance(case.body, dict) and isinstance(case.body.get("wait"), int | float):
        case.body["wait"] = min(case.body["wait"], 0)
    # Some rules span several fields (a pack's sizes and its size), which a schema cannot say.
    excluded: list[Any] = [positive_data_acceptance]
    if case.operation.label == "POST /v1/subjects/{subject}/messages":
        # Any bytes are a payload, whatever their type was declared to be.
        excluded.append(negative_data_rejection)
    case.call_and_validate(
        base_url=live.url, headers={"Authorization": f"Bearer {live.token}"}, excluded_checks=excluded
    )
