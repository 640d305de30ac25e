"""The object store as the host uses it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime

from minitoolstream.adapters.s3 import xml
from minitoolstream.adapters.s3.requests import OWN_BUCKET, Advice, S3Requests, StoreSilent
from minitoolstream.adapters.s3.signer import metadata_headers, range_header, sigv4_of
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.config import Settings
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.net.http1 import HttpClient, HttpResponse
from minitoolstream.ports import Metrics, ObjectAbout, ObjectInfo, StoredPart

METADATA_PREFIX = "x-amz-meta-"
PAGE = 1000
"""Most keys or parts that S3 lists, or deletes, in one request."""
LOCKED_AFTER = 1.0
LOOKS_AT_ONCE = 16
COMPLETE_SILENCE = 120.0
"""A store may take long to join 10,000 parts, and answers only after the event it causes was handled."""


class S3Payloads:
    """Fulfils `ports.PayloadStore` for S3, MinIO and what speaks like them."""

    def __init__(
        self,
        sigv4: SigV4,
        http: HttpClient | None = None,
        metrics: Metrics | None = None,
        advice: Advice = OWN_BUCKET,
    ) -> None:
        self._http = http or HttpClient()
        self._requests = S3Requests(self._http, sigv4, metrics, advice)

    @classmethod
    def from_settings(cls, settings: Settings, metrics: Metrics | None = None) -> S3Payloads:
        return cls(sigv4_of(settings, settings["minio.endpoint"]), metrics=metrics)

    @property
    def requests(self) -> S3Requests:
        """For the settings of the bucket, over the same connections."""
        return self._requests

    async def put_new(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        headers = {"Content-Type": content_type, "If-None-Match": "*"}
        await self._requests.send("PUT", name, headers=headers, body=body)

    async def put_fresh(self, name: str, body: bytes | list[bytes], *, content_type: str) -> None:
        await self._requests.send("PUT", name, headers={"Content-Type": content_type}, body=body, retry_stale=False)

    async def get_range(self, name: str, first: int, last: int) -> bytes:
        headers = {"Range": range_header(first, last)}
        response = await self._requests.send("GET", name, headers=headers, accept=(206,), retry=True)
        if len(response.body) != last - first + 1:
            raise MtsError("payload_missing", "the object is shorter than its message")
        return response.body

    async def get_whole(self, name: str, size: int) -> bytes:
        # One byte more is asked for than there should be: a longer object is seen without reading it.
        headers = {"Range": range_header(0, size)}
        response = await self._requests.send("GET", name, headers=headers, accept=(206, 416), retry=True)
        body = response.body if response.status == 206 else b""
        if len(body) != size:
            raise MtsError("size_mismatch", f"the object has not {size} bytes")
        return body

    async def get_begin(self, name: str, most: int) -> tuple[bytes, int]:
        headers = {"Range": range_header(0, most - 1)}
        response = await self._requests.send("GET", name, headers=headers, accept=(206, 416), retry=True)
        if response.status == 416:  # there is no first byte
            return b"", 0
        size = response.headers.get("content-range", "").rpartition("/")[2]
        if not xml.is_number(size) or len(response.body) != min(most, int(size)):
            raise unavailable("the object store answered for another range than was asked for")
        return response.body, int(size)

    async def find(self, name: str) -> ObjectInfo | None:
        response = await self._head(name, retry=True)
        if response is not None and response.status == 200:
            size, etag = response.headers.get("content-length"), response.headers.get("etag")
            if size is None or etag is None:
                raise unavailable("what answers is no object store")
            return ObjectInfo(name, int(size), etag.strip('"'))
        if response is not None and await self._is_missing(name):
            return None
        # It answers while a PUT is running; but for a key that is not there, MinIO reads the whole folder.
        found, _ = await self._list(name, "", 1)
        return found[0] if found and found[0].name == name else None

    async def about(self, name: str) -> ObjectAbout | None:
        response = await self._requests.send("HEAD", name, accept=(200, 404), retry=True)
        if response.status == 404:
            return None
        headers = response.headers
        metadata = {
            key.removeprefix(METADATA_PREFIX): value
            for key, value in headers.items()
            if key.startswith(METADATA_PREFIX)
        }
        modified = int(parsedate_to_datetime(headers["last-modified"]).timestamp())
        return ObjectAbout(int(headers["content-length"]), headers.get("content-type", ""), modified, metadata)

    async def is_being_written(self, name: str) -> bool:
        return await self._head(name) is None

    async def list_after(self, prefix: str, start_after: str, limit: int) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        more = True
        while more and len(found) < limit:
            last = found[-1].name if found else start_after
            page, more = await self._list(prefix, last, min(PAGE, limit - len(found)))
            found += page
        return found

    async def delete_many(self, names: Sequence[str]) -> list[str]:
        # In one request to MinIO a key with a running PUT holds up all the others, and keeps their locks even
        # when we hang up. So look first; what exists has no PUT running that could still change it.
        at_once = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def look(name: str) -> int | None:
            async with at_once:
                response = await self._head(name)
            return response.status if response is not None else None

        seen = dict(zip(names, await asyncio.gather(*map(look, names)), strict=True))
        there = [name for name, status in seen.items() if status == 200]
        gone = {name for name, status in seen.items() if status == 404}
        for start in range(0, len(there), PAGE):
            gone.update(await self._delete(there[start : start + PAGE]))
        return [name for name in names if name in gone]

    async def create_multipart(self, name: str, *, content_type: str, metadata: Mapping[str, str]) -> str:
        headers = {"Content-Type": content_type, **metadata_headers(metadata)}
        response = await self._requests.send("POST", name, query={"uploads": ""}, headers=headers)
        return xml.Document.parse(response.body).text("UploadId")

    async def put_part(self, name: str, multipart_id: str, number: int, body: bytes | Sequence[bytes]) -> StoredPart:
        query = {"uploadId": multipart_id, "partNumber": str(number)}
        response = await self._requests.send("PUT", name, query=query, body=body, retry=True)
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        return StoredPart(number, size, response.headers.get("etag", "").strip('"'))

    async def list_parts(self, name: str, multipart_id: str) -> list[StoredPart] | None:
        found: list[StoredPart] = []
        while True:
            query = {"uploadId": multipart_id, "max-parts": str(PAGE)}
            if found:
                query["part-number-marker"] = str(found[-1].number)
            response = await self._requests.send("GET", name, query=query, accept=(200, 404), retry=True)
            if response.status == 404:
                self._must_be(response.body, "NoSuchUpload")
                return None
            document = xml.Document.parse(response.body)
            page = xml.parts(document)
            found += page
            if not (document.truncated and page):
                return found

    async def complete_multipart(self, name: str, multipart_id: str, parts: Sequence[StoredPart]) -> bool:
        if not parts:
            raise MtsError("upload_incomplete", "no part of the upload has arrived")
        response = await self._requests.send(
            "POST",
            name,
            query={"uploadId": multipart_id},
            headers={"Content-Type": "application/xml", "If-None-Match": "*"},
            body=xml.complete_request(parts),
            accept=(200, 400, 404, 412),
            # Sent twice, the second finds the multipart gone: False, and the caller looks at the key.
            retry_stale=True,
            timeout=COMPLETE_SILENCE,
        )
        code = xml.error_code(response.body)
        if response.status == 200 and not code:
            return True
        if response.status == 412 or code in ("NoSuchUpload", "PreconditionFailed"):
            return False
        if code in ("InvalidPart", "InvalidPartOrder", "EntityTooSmall"):
            raise MtsError("upload_incomplete", f"the parts in the store do not make up the upload ({code})")
        # S3 begins its 200 before it knows the outcome; an error inside is as good as a 5xx.
        raise self._requests.problem(500 if response.status == 200 else response.status, code)

    async def abort_multipart(self, name: str, multipart_id: str) -> None:
        query = {"uploadId": multipart_id}
        response = await self._requests.send("DELETE", name, query=query, accept=(204, 404), retry=True)
        if response.status == 404:
            self._must_be(response.body, "NoSuchUpload")

    async def list_multiparts(self, name: str) -> list[str]:
        query = {"uploads": "", "prefix": name, "max-uploads": str(PAGE)}
        response = await self._requests.send("GET", "", query=query, retry=True)
        return xml.multipart_ids(xml.Document.parse(response.body), name)

    async def now_ms(self) -> int:
        # A store whose clock differs much refuses our signature, and tells its time all the same.
        response = await self._requests.send("HEAD", "", accept=(200, 403, 404), timeout=5.0)
        try:
            told = parsedate_to_datetime(response.headers.get("date", ""))
        except ValueError:
            raise unavailable("the object store does not tell its time") from None
        return int(told.timestamp() * 1000)

    async def check(self) -> None:
        response = await self._requests.send("HEAD", "", accept=(200, 404), timeout=5.0)
        if response.status == 404:
            raise self._requests.problem(404, "NoSuchBucket")

    async def close(self) -> None:
        await self._http.close()

    async def _head(self, name: str, *, retry: bool = False) -> HttpResponse | None:
        """Of status 200 or 404; None while a PUT holds the key's lock."""
        try:
            return await self._requests.send("HEAD", name, accept=(200, 404), retry=retry, timeout=LOCKED_AFTER)
        except StoreSilent:
            return None

    async def _is_missing(self, name: str) -> bool:
        """Said with words: the 404 of a HEAD may be that of the bucket. False where it has come meanwhile."""
        try:
            first = {"Range": range_header(0, 0)}
            accept = (200, 206, 404, 416)
            response = await self._requests.send(
                "GET", name, headers=first, accept=accept, retry=True, timeout=LOCKED_AFTER
            )
        except StoreSilent:
            return False
        if response.status == 404:
            self._must_be(response.body, "NoSuchKey")
        return response.status == 404

    async def _delete(self, names: Sequence[str]) -> list[str]:
        body = xml.delete_request(names)
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        headers = {"Content-MD5": base64.b64encode(digest).decode(), "Content-Type": "application/xml"}
        response = await self._requests.send(
            "POST", "", query={"delete": ""}, headers=headers, body=body, retry_stale=True
        )
        return xml.deleted_names(xml.Document.parse(response.body))

    async def _list(self, prefix: str, start_after: str, limit: int) -> tuple[list[ObjectInfo], bool]:
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit), "encoding-type": "url"}
        if start_after:
            query["start-after"] = start_after
        response = await self._requests.send("GET", "", query=query, retry=True)
        document = xml.Document.parse(response.body)
        found = xml.objects(document)
        return found, document.truncated and bool(found)

    def _must_be(self, body: bytes, code: str) -> None:
        if xml.error_code(body) != code:
            raise self._requests.problem(404, xml.error_code(body))
