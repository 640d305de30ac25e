"""The bucket's lifecycle, versioning and object lock, over the S3 API."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from minitoolstream.adapters.s3 import xml
from minitoolstream.adapters.s3.requests import S3Requests
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.lifecycle import BucketState, LifecycleRule
from minitoolstream.net.http1 import HttpResponse

_NONE = frozenset({"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"})


NEEDS = (
    "s3:GetLifecycleConfiguration",
    "s3:PutLifecycleConfiguration",
    "s3:GetBucketVersioning",
    "s3:GetBucketObjectLockConfiguration",
)
"""What the host's user must be allowed for this."""


class S3Bucket:
    """Fulfils `ports.BucketStore`."""

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests

    async def lifecycle(self) -> list[LifecycleRule]:
        response = await self._get("lifecycle")
        return xml.lifecycle_rules(response.body) if response else []

    async def set_lifecycle(self, rules: Sequence[LifecycleRule]) -> None:
        if not rules:
            await self._requests.send("DELETE", "", query={"lifecycle": ""}, retry=True)
            return
        body = xml.lifecycle_request(rules)
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        headers = {"Content-MD5": base64.b64encode(digest).decode(), "Content-Type": "application/xml"}
        response = await self._requests.send(
            "PUT", "", query={"lifecycle": ""}, headers=headers, body=body, accept=(200, 204, 403), retry=True
        )
        _must_be_allowed(response)

    async def state(self) -> BucketState:
        versioning = await self._get("versioning")
        lock = await self._get("object-lock")
        status = xml.Document.parse(versioning.body).text("Status") if versioning else ""
        return BucketState(
            status.lower() or "off",
            object_lock=lock is not None and xml.Document.parse(lock.body).text("ObjectLockEnabled") == "Enabled",
        )

    async def _get(self, what: str) -> HttpResponse | None:
        """None when the bucket has no such thing."""
        response = await self._requests.send("GET", "", query={what: ""}, accept=(200, 403, 404), retry=True)
        _must_be_allowed(response)
        code = xml.error_code(response.body)
        if response.status == 404 and code not in _NONE:
            raise self._requests.problem(404, code)
        return response if response.status == 200 else None


def _must_be_allowed(response: HttpResponse) -> None:
    if response.status == 403:
        code = xml.error_code(response.body)
        raise MtsError(
            "not_configured",
            f"the object store does not let the host's user look after the bucket's lifecycle ({code}): it needs "
            + ", ".join(NEEDS),
        )
