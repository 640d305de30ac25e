"""Calls of AWS services that speak JSON, signed with SigV4 in headers.

Our own because boto3 takes half a second to import, which a Lambda would pay at every cold start for two small calls.
A test holds the signature against botocore's.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.net.http1 import HttpClient, HttpError

_TIMEOUT = 3.0
_BUSY = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Service:
    """`name` is that of its endpoint and signature, `prefix` that of its operations."""

    name: str
    prefix: str
    json_version: str


SECRETS_MANAGER = Service("secretsmanager", "secretsmanager", "1.1")
SQS = Service("sqs", "AmazonSQS", "1.0")


class AwsCalls:
    """Calls services of one region with one set of keys. `clock` is for tests."""

    def __init__(
        self,
        region: str,
        access_key: str,
        secret_key: str,
        *,
        session_token: str | None = None,
        endpoint: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._region = region
        self._access_key = access_key
        self._secret_key = secret_key
        self._session_token = session_token
        self._endpoint = endpoint
        self._clock = clock
        self._http = HttpClient(pool_per_host=2, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)

    @classmethod
    def from_settings(cls, settings: Settings) -> AwsCalls:
        return cls(
            settings["minio.region"],
            settings.secret("minio.access_key"),
            settings.secret("minio.secret_key"),
            session_token=settings["minio.session_token"],
            endpoint=settings["aws.endpoint"],
        )

    async def call(self, service: Service, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer; what AWS refuses is an MtsError `not_configured`, all else `unavailable`."""
        url = (self._endpoint or f"https://{service.name}.{self._region}.amazonaws.com").rstrip("/") + "/"
        body = msgspec.json.encode(arguments)
        headers = self.signed_headers(service, operation, urlsplit(url).netloc, body)
        try:
            answer = await self._http.request("POST", url, headers=headers, body=body, retry_stale=True)
        except HttpError as error:
            raise unavailable(f"AWS does not answer {operation}: {error}") from error
        if answer.status != 200:
            raise _problem(operation, answer.status, answer.body)
        decoded: dict[str, Any] = msgspec.json.decode(answer.body)
        return decoded

    def signed_headers(self, service: Service, operation: str, host: str, body: bytes) -> dict[str, str]:
        """All that must be sent but `Host`, which is signed too."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        headers = {
            "content-type": f"application/x-amz-json-{service.json_version}",
            "x-amz-date": date,
            "x-amz-target": f"{service.prefix}.{operation}",
        }
        if self._session_token:
            headers["x-amz-security-token"] = self._session_token
        signed = dict(sorted({**headers, "host": host}.items()))
        names = ";".join(signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{date[:8]}/{self._region}/{service.name}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._secret_key}".encode()
        for step in scope.split("/"):
            key = hmac.digest(key, step.encode(), "sha256")
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        credential = f"{self._access_key}/{scope}"
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    async def close(self) -> None:
        await self._http.close()


def _problem(operation: str, status: int, body: bytes) -> MtsError:
    """Only the kind of error is told: its message may quote what was sent."""
    try:
        kind = str(msgspec.json.decode(body)["__type"]).rpartition("#")[2]
    except (msgspec.DecodeError, UnicodeError, KeyError, TypeError):
        kind = ""
    said = f"AWS refused {operation} ({status} {kind}".rstrip() + ")"
    if status >= 500 or status in _BUSY or "Throttl" in kind:
        return unavailable(said)
    return MtsError("not_configured", f"{said}: look at the function's role and at what its settings name")
