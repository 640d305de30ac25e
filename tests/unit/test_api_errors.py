"""The table from error codes to statuses is whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import grpc
import pytest

from minitoolstream.api.errors import HTTP_STATUS, STATUSES, answer_code, error_response, grpc_status
from minitoolstream.domain.errors import MtsError

ROOT = Path(__file__).parents[2]
SERVER_SIDE = ("domain", "services", "adapters", "api", "host", "grpc")
CODE = r'"([a-z_]+)"'


def test_every_code_that_a_server_raises_has_a_status() -> None:
    raised: set[str] = set()
    for layer in SERVER_SIDE:
        for path in (ROOT / "minitoolstream" / layer).rglob("*.py"):
            raised |= set(re.findall(rf"MtsError\(\s*{CODE}", path.read_text("utf-8")))
    for path in (ROOT / "tarantool" / "mts").rglob("*.lua"):
        raised |= set(re.findall(r"errors\.refuse\('([a-z_]+)'", path.read_text("utf-8")))
    assert len(raised) > 15
    assert raised <= set(HTTP_STATUS)


def test_every_grpc_status_is_one() -> None:
    assert {status for _, status in STATUSES.values()} <= {status.name for status in grpc.StatusCode}


@pytest.mark.parametrize(
    ("code", "status", "in_answer"),
    [
        ("bad_request", "INVALID_ARGUMENT", 1),
        ("unknown_durable", "NOT_FOUND", 404),
        ("beyond_end", "OUT_OF_RANGE", 409),
        ("unauthorized", "UNAUTHENTICATED", None),
        ("unavailable", "UNAVAILABLE", None),
        ("too_large", "RESOURCE_EXHAUSTED", None),
        ("internal", "INTERNAL", None),
        ("of_tomorrow", "INTERNAL", None),
    ],
)
def test_what_a_request_is_to_blame_for_is_in_the_answer(code: str, status: str, in_answer: int | None) -> None:
    error = MtsError(code, "what is wrong")
    assert (grpc_status(error), answer_code(error)) == (status, in_answer)


def test_a_number_that_json_readers_would_round_is_a_string_in_details_too() -> None:
    exact, large = 2**53, 2**53 + 1
    details = {"watermark": large, "position": exact, "some": [large, {"sequence": large}], "at": 0.5, "resent": True}
    shown = json.loads(error_response(MtsError("beyond_end", "too far", details)).body)["error"]["details"]
    text = str(large)
    assert shown == {
        "watermark": text,
        "position": exact,
        "some": [text, {"sequence": text}],
        "at": 0.5,
        "resent": True,
    }
    assert shown["resent"] is True
