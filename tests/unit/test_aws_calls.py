"""Calls of AWS: signed as botocore would sign them, and what goes wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from minitoolstream.adapters.aws.calls import SECRETS_MANAGER, SQS, AwsCalls, Service
from minitoolstream.adapters.aws.dead_letters import DeadLetterQueue
from minitoolstream.adapters.aws.secrets import ManagedSecrets
from minitoolstream.domain.errors import MtsError
from minitoolstream.net.http1 import HttpError, HttpResponse


@pytest.mark.parametrize("service", [SECRETS_MANAGER, SQS])
@pytest.mark.parametrize("token", [None, "a/session+token=="])
def test_a_call_is_signed_as_botocore_signs_it(service: Service, token: str | None) -> None:
    calls = AwsCalls("eu-central-1", "AKIA", "secret", session_token=token)
    body, host = b'{"a":"b"}', f"{service.name}.eu-central-1.amazonaws.com"
    headers = calls.signed_headers(service, "DoIt", host, body)
    sent = {name: value for name, value in headers.items() if name not in {"authorization", "x-amz-date"}}
    request = AWSRequest("POST", f"https://{host}/", data=body, headers=sent)
    signer = SigV4Auth(Credentials("AKIA", "secret", token), service.name, "eu-central-1")
    request.context["timestamp"] = headers["x-amz-date"]
    request.headers["X-Amz-Date"] = headers["x-amz-date"]
    string = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["authorization"].endswith(f"Signature={signer.signature(string, request)}")


@dataclass
class Aws:
    """In the place of the HTTP client."""

    status: int = 200
    body: bytes = b"{}"
    away: bool = False
    sent: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    async def request(self, _method: str, url: str, *, headers: dict[str, str], body: bytes, **_: Any) -> HttpResponse:
        self.sent.append((url, headers, json.loads(body)))
        if self.away:
            raise HttpError("no answer", sent=True)
        return HttpResponse(self.status, {}, self.body)

    async def close(self) -> None: ...


def calls_of(aws: Aws, endpoint: str | None = None) -> AwsCalls:
    calls = AwsCalls("eu-central-1", "AKIA", "secret", endpoint=endpoint)
    calls._http = aws  # type: ignore[assignment]
    return calls


async def test_secrets_are_a_map_in_one_secret() -> None:
    aws = Aws(body=json.dumps({"SecretString": '{"server.token": "t"}'}).encode())
    assert await ManagedSecrets(calls_of(aws), "mts").read() == {"server.token": "t"}
    ((url, headers, body),) = aws.sent
    assert (url, body) == ("https://secretsmanager.eu-central-1.amazonaws.com/", {"SecretId": "mts"})
    assert headers["x-amz-target"] == "secretsmanager.GetSecretValue"


@pytest.mark.parametrize("answer", [{}, {"SecretString": "plain"}, {"SecretString": '{"a": 1}'}])
async def test_a_secret_that_is_no_such_map_is_named_without_its_content(answer: Any) -> None:
    with pytest.raises(MtsError, match="the secret mts must be a JSON map") as caught:
        await ManagedSecrets(calls_of(Aws(body=json.dumps(answer).encode())), "mts").read()
    assert caught.value.code == "bad_config"


async def test_a_dead_letter_carries_its_reason() -> None:
    aws = Aws()
    await DeadLetterQueue(calls_of(aws, "http://127.0.0.1:4566"), "http://q").put("{", "malformed_event")
    ((url, _, body),) = aws.sent
    assert url == "http://127.0.0.1:4566/"
    assert (body["QueueUrl"], body["MessageBody"]) == ("http://q", "{")
    assert body["MessageAttributes"]["reason"]["StringValue"] == "malformed_event"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "com.amazonaws#AccessDeniedException", "not_configured"),
        (400, "ResourceNotFoundException", "not_configured"),
        (400, "ThrottlingException", "unavailable"),
        (503, "InternalServiceError", "unavailable"),
        (429, "", "unavailable"),
    ],
)
async def test_a_refusal_says_whether_to_try_again(status: int, kind: str, code: str) -> None:
    aws = Aws(status, json.dumps({"__type": kind, "message": "quotes what was sent"}).encode())
    with pytest.raises(MtsError, match="DoIt") as caught:
        await calls_of(aws).call(SQS, "DoIt", {})
    assert caught.value.code == code
    assert "quotes" not in caught.value.message


async def test_no_answer_is_unavailable() -> None:
    with pytest.raises(MtsError) as caught:
        await calls_of(Aws(away=True)).call(SQS, "DoIt", {})
    assert caught.value.retryable
