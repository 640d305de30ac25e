"""A PUT to a presigned URL, tried again as long as the store cannot serve."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from minitoolstream.client._store import ALREADY_THERE, STORE_TIMEOUT, store_error
from minitoolstream.domain.errors import MtsError
from minitoolstream.pb import ingress_v1_pb2 as pb

_PAUSE = 0.5


def put(request: pb.SignedRequest, body: bytes, seconds: float) -> None:
    """Whoever put the same before us put the same bytes."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            status, answer = _sent(request, body)
            if status < 300 or status == ALREADY_THERE:
                return
            error = store_error(status, answer)
        except (OSError, http.client.HTTPException) as problem:
            error = MtsError("unavailable", f"cannot reach the object store: {problem}")
        if not error.retryable or time.monotonic() > deadline:
            raise error
        time.sleep(_PAUSE)


def _sent(request: pb.SignedRequest, body: bytes) -> tuple[int, bytes]:
    parts = urlsplit(request.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=STORE_TIMEOUT)
    try:
        connection.request(request.method, f"{parts.path}?{parts.query}", body, dict(request.headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
