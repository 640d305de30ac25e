"""A page of another origin calls the API through API Gateway: of listed origins it may, of others not."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import ORIGIN, Target
from tests.live import Answer, send

OTHERS = ["https://evil.example", f"{ORIGIN}.evil", "null"]


def ask(target: Target, origin: str, path: str = "/v1/subjects/s/uploads") -> Answer:
    """What a browser sends before the request itself: without a token."""
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-evil",
    }
    return send("OPTIONS", target.url + path, headers=headers)


def allowed(answer: Answer) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("path", ["/v1/subjects/s/uploads", "/v1/messages/1", "/v1/subjects"])
def test_a_listed_origin_is_told_what_it_may_send(aws_target: Target, path: str) -> None:
    answer = ask(aws_target, ORIGIN, path)
    assert (answer.status, answer.body, allowed(answer)) == (204, b"", ORIGIN)
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "DELETE" in answer.headers["access-control-allow-methods"]
    assert answer.headers["vary"] == "origin"


@pytest.mark.parametrize("origin", OTHERS)
def test_another_origin_is_refused(aws_target: Target, origin: str) -> None:
    answer = ask(aws_target, origin)
    assert (answer.status, answer.code, allowed(answer)) == (403, "forbidden", None)
    got = aws_target.api("GET", "/v1/subjects", headers={"origin": origin})
    assert (got.status, allowed(got)) == (200, None)


def test_a_page_reads_answers_and_why_it_was_refused(aws_target: Target) -> None:
    """The last two are API Gateway's own answers: no function was asked."""
    missing = aws_target.api("GET", "/v1/messages/999999999", headers={"origin": ORIGIN})
    wrong = aws_target.api("GET", "/v1/subjects", headers={"origin": ORIGIN, "authorization": "Bearer wrong"})
    nowhere = aws_target.api("GET", "/v1/nowhere", headers={"origin": ORIGIN})
    signed = aws_target.api("GET", "/v1/nowhere", headers={"authorization": "AWS4-HMAC-SHA256 Credential=x"})
    assert [(answer.status, allowed(answer)) for answer in (missing, wrong, nowhere)] == [
        (404, ORIGIN),
        (401, ORIGIN),
        (404, ORIGIN),
    ]
    assert missing.headers["access-control-expose-headers"] == "x-request-id, retry-after"
    for answer in (nowhere, signed):
        assert (answer.status, answer.code) == (404, "not_found")
        assert answer.json["error"]["message"] == "there is no such route"


def test_answers_with_urls_are_kept_by_nobody(target: Target) -> None:
    answer = target.api("GET", "/v1/subjects")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"]
