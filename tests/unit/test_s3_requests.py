"""What an unexpected answer of the object store means to the services."""

from __future__ import annotations

import pytest

from minitoolstream.adapters.s3.requests import problem_of


@pytest.mark.parametrize(
    ("status", "code"), [(507, ""), (507, "XMinioStorageFull"), (400, "XMinioAdminBucketQuotaExceeded")]
)
def test_a_full_store_says_so_and_may_be_asked_again(status: int, code: str) -> None:
    problem = problem_of("bucket", status, code)
    assert (problem.code, problem.retryable, problem.details) == ("unavailable", True, {"full": True})
    assert "is full" in problem.message


def test_a_busy_store_is_not_full() -> None:
    assert problem_of("bucket", 503, "SlowDown").details == {}
