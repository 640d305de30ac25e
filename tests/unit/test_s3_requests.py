"""What an unexpected answer of the object store means to the services."""

from __future__ import annotations

import pytest

from minitoolstream.adapters.s3 import xml
from minitoolstream.adapters.s3.requests import problem_of
from minitoolstream.domain.errors import MtsError


@pytest.mark.parametrize(
    ("status", "code"), [(507, ""), (507, "XMinioStorageFull"), (400, "XMinioAdminBucketQuotaExceeded")]
)
def test_a_full_store_says_so_and_may_be_asked_again(status: int, code: str) -> None:
    problem = problem_of("bucket", status, code)
    assert (problem.code, problem.retryable, problem.details) == ("unavailable", True, {"full": True})
    assert "is full" in problem.message


def test_a_busy_store_is_not_full() -> None:
    assert problem_of("bucket", 503, "SlowDown").details == {}


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'<?xml version="1.0" encoding="utf-7"?><a/>',
        b'<?xml version="1.0" encoding="utf-32"?><a/>',
        b"<r><Contents><Key>k</Key><Size>many</Size></Contents></r>",
        b"<r><Contents><Key>k</Key></Contents></r>",
        b"<r><Part><PartNumber>1</PartNumber><Size>%s</Size></Part></r>" % (b"9" * 5000),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_ours(body: bytes) -> None:
    assert xml.error_code(body) == ""
    with pytest.raises(MtsError) as caught:
        xml.objects(xml.Document.parse(body)) or xml.parts(xml.Document.parse(body))
    assert caught.value.code == "unavailable"
