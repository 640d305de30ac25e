"""The calls that prepare and check a load; none of them is timed."""

from __future__ import annotations

import datetime
import itertools
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import msgspec
from minio import Minio
from minio.notificationconfig import NotificationConfig, QueueConfig

from bench.errors import BenchError
from bench.generator import LoadGenerator, Plan, Request
from bench.stack import Sink
from minitoolstream.domain.message import DEFAULT_CONTENT_TYPE
from minitoolstream.stack.minio import Credentials

_TICKETS_A_CALL = 1000


class Api:
    """The host's HTTP API."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"}

    def call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else msgspec.json.encode(body),
            method=method,
            headers={**self.headers, "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            raise BenchError(f"{method} {path}: {error.code} {error.read()[:500].decode()}") from error

    def tickets(self, subject: str, count: int, size: int) -> list[dict[str, Any]]:
        upload = {"size": size, "content_type": DEFAULT_CONTENT_TYPE}
        tickets: list[dict[str, Any]] = []
        while len(tickets) < count:
            uploads = [upload] * min(_TICKETS_A_CALL, count - len(tickets))
            tickets += self.call("POST", f"/v1/subjects/{subject}/uploads", {"uploads": uploads})["uploads"]
        return tickets

    def receipts(self, generator: LoadGenerator, upload_ids: Sequence[str]) -> list[dict[str, Any]]:
        urls = (f"{self.url}/v1/uploads/{upload_id}?wait=25" for upload_id in upload_ids)
        requests = [Request("GET", url, self.headers) for url in urls]
        result = generator.run(Plan(in_flight=16, count=len(requests), requests=requests, capture=True))
        result.must_have_succeeded(len(requests))
        return [msgspec.json.decode(body) for body in result.captured]


class RawStore:
    """The object store without us: plain presigned URLs into a bucket that sends no events, or sends them to nobody."""

    BUCKET, WITH_EVENTS = "raw", "with-events"

    def __init__(self, endpoint: str, root: Credentials, region: str) -> None:
        address = endpoint.removeprefix("http://")
        self.client = Minio(address, root.access_key, root.secret_key, secure=False, region=region)
        for bucket in (self.BUCKET, self.WITH_EVENTS):
            self.client.make_bucket(bucket)
        target = QueueConfig(["s3:ObjectCreated:*"], queue=f"arn:minio:sqs:{region}:{Sink.ID}:webhook")
        self.client.set_bucket_notification(self.WITH_EVENTS, NotificationConfig(queue_config_list=[target]))
        self._names = (f"{number:08d}" for number in itertools.count())

    def puts(self, count: int, size: int, bucket: str = BUCKET) -> list[Request]:
        """PUTs of new objects."""
        headers = {"Content-Type": DEFAULT_CONTENT_TYPE}
        names = itertools.islice(self._names, count)
        return [Request("PUT", self._url(bucket, name), headers, size) for name in names]

    def _url(self, bucket: str, name: str) -> str:
        return str(self.client.presigned_put_object(bucket, name, expires=datetime.timedelta(hours=2)))
