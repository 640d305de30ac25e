"""A PUT whose body comes in two halves, with as long a pause between them as a test needs."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.live import Live, eventually, send


class SlowPut:
    """Begins with half of the payload; `finish` sends the rest and returns the status."""

    def __init__(self, live: Live, ticket: Mapping[str, Any], payload: bytes) -> None:
        url = urlsplit(ticket["url"])
        head = [f"PUT {url.path}?{url.query} HTTP/1.1", f"Host: {url.netloc}", f"Content-Length: {len(payload)}"]
        head += [f"{name}: {value}" for name, value in ticket["headers"].items()]
        half = len(payload) // 2
        self._rest = payload[half:]
        self._socket = socket.create_connection((url.hostname, url.port), timeout=60)
        self._socket.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode() + payload[:half])
        wanted = {"Bucket": live.minio.bucket, "Key": ticket["object_name"]}
        self._head = live.minio.s3().generate_presigned_url("head_object", Params=wanted)
        eventually(self._holds_the_lock)

    def _holds_the_lock(self) -> bool:
        """While it runs the store does not answer a HEAD on the key (rule 10)."""
        try:
            send("HEAD", self._head, timeout=0.5)
        except TimeoutError:
            return True
        return False

    def finish(self) -> int:
        self._socket.sendall(self._rest)
        answer = self._socket.makefile("rb").readline()
        self._socket.close()
        return int(answer.split()[1])
