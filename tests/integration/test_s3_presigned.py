"""What MinIO and LocalStack enforce of the URLs we sign. Promise 6: a payload is what its ticket said, or not there."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.net.http1 import HttpClient, HttpResponse
from minitoolstream.ports import GetRequest, ObjectInfo, SignedRequest
from tests.servers import StoreServer

BODY = b"the payload"
SHA256 = hashlib.sha256(BODY).hexdigest()


ON_MINIO = pytest.mark.parametrize("server", ["minio"], indirect=True)
"""LocalStack shows nothing of a PUT under way, and keeps the half of a body that ended early."""


@dataclass
class World:
    sigv4: SigV4
    signer: S3Signer
    store: S3Payloads
    http: HttpClient
    name: str

    def ticket(self, *, sha256: str | None = SHA256, metadata: Mapping[str, str] | None = None) -> SignedRequest:
        return self.signer.put(
            self.name, size=len(BODY), content_type="text/plain", expires_in=60, sha256=sha256, metadata=metadata
        )

    async def put(
        self, signed: SignedRequest, body: bytes = BODY, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        return await self.http.request(
            "PUT", signed.url, headers=signed.headers if headers is None else headers, body=body
        )

    async def found(self) -> ObjectInfo | None:
        return await self.store.find(self.name)


@pytest.fixture(params=["minio", pytest.param("localstack", marks=pytest.mark.xdist_group("localstack"))])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
async def world(server: StoreServer) -> AsyncIterator[World]:
    sigv4 = SigV4(server.endpoint, server.bucket, server.region, server.access_key, server.secret_key)
    it = World(sigv4, S3Signer(sigv4), S3Payloads(sigv4), HttpClient(), f"m/presigned/1/{uuid.uuid4()}")
    yield it
    await it.store.close()
    await it.http.close()


async def test_a_put_as_the_ticket_says_is_stored(world: World) -> None:
    answer = await world.put(world.ticket(metadata={"mts-producer": "p ü/1", "mts-seqno": "7"}))
    assert answer.status == 200
    found = await world.found()
    assert found
    assert found.size == len(BODY)
    head = await world.http.request("HEAD", world.sigv4.presign("HEAD", world.name, expires_in=60))
    assert head.headers["content-type"] == "text/plain"
    assert head.headers["x-amz-meta-mts-producer"] == "p%20%C3%BC/1"
    assert head.headers["x-amz-meta-mts-seqno"] == "7"


@pytest.mark.parametrize("body", [b"", BODY[:-1], BODY + b"!"])
async def test_a_put_of_another_size_is_refused(world: World, body: bytes) -> None:
    assert (await world.put(world.ticket(sha256=None), body)).status == 403
    assert await world.found() is None


async def test_a_put_of_other_bytes_than_the_checksum_says_is_refused(world: World) -> None:
    assert (await world.put(world.ticket(), BODY[::-1])).status == 400
    assert await world.found() is None


async def test_a_put_of_another_content_type_is_refused(world: World) -> None:
    signed = world.ticket()
    answer = await world.put(signed, headers={**signed.headers, "Content-Type": "text/html"})
    assert answer.status == 403
    assert await world.found() is None


async def test_a_second_put_is_refused_and_changes_nothing(world: World) -> None:
    signed = world.ticket(sha256=None)
    assert (await world.put(signed)).status == 200
    assert (await world.put(signed, BODY[::-1])).status == 412
    assert await world.store.get_range(world.name, 0, len(BODY) - 1) == BODY


async def test_of_two_puts_at_the_same_time_one_is_stored(world: World) -> None:
    signed = world.ticket()
    answers = await asyncio.gather(*(world.put(signed) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7


@pytest.mark.parametrize("left_out", ["Content-Type", "If-None-Match", "x-amz-checksum-sha256", "x-amz-meta-mts-seqno"])
async def test_a_signed_header_left_out_is_refused(world: World, left_out: str) -> None:
    signed = world.ticket(metadata={"mts-seqno": "7"})
    headers = {name: value for name, value in signed.headers.items() if name != left_out}
    assert len(headers) == len(signed.headers) - 1
    assert 400 <= (await world.put(signed, headers=headers)).status < 500
    assert await world.found() is None


async def test_a_signed_header_with_another_value_is_refused(world: World) -> None:
    signed = world.ticket(metadata={"mts-seqno": "7"})
    for name, value in (("x-amz-meta-mts-seqno", "8"), ("If-None-Match", "x")):
        answer = await world.put(signed, headers={**signed.headers, name: value})
        assert answer.status == 403
    assert await world.found() is None


@pytest.mark.parametrize(
    ("pattern", "to"),
    [
        (r"/presigned/", "/presigned2/"),
        (r"X-Amz-Expires=60", "X-Amz-Expires=61"),
        (r"X-Amz-Date=\d{8}", "X-Amz-Date=20200101"),
        (r"X-Amz-Signature=.", "X-Amz-Signature=g"),
        (r"X-Amz-SignedHeaders=[^&]*", "X-Amz-SignedHeaders=host"),
        (r"&X-Amz-Signature=.*", ""),
    ],
)
async def test_a_tampered_url_is_refused(world: World, pattern: str, to: str) -> None:
    signed = world.ticket()
    tampered = re.sub(pattern, to, signed.url)
    assert tampered != signed.url
    answer = await world.put(SignedRequest("PUT", tampered, signed.headers))
    assert 400 <= answer.status < 500
    assert await world.found() is None


async def test_a_url_for_one_method_is_refused_for_others(world: World) -> None:
    signed = world.ticket()
    await world.put(signed)
    for method in ("GET", "DELETE"):
        assert (await world.http.request(method, signed.url)).status in (400, 403)
    assert await world.found()


async def test_an_expired_url_is_refused(world: World, server: StoreServer) -> None:
    an_hour_ago = SigV4(
        server.endpoint,
        server.bucket,
        server.region,
        server.access_key,
        server.secret_key,
        clock=lambda: time.time() - 3600,
    )
    signed = S3Signer(an_hour_ago).put(world.name, size=len(BODY), content_type="text/plain", expires_in=3599)
    answer = await world.put(signed)
    assert answer.status == 403
    assert b"expired" in answer.body
    assert await world.found() is None


@ON_MINIO
async def test_a_body_that_ends_early_stores_nothing(world: World) -> None:
    size = 1024 * 1024
    signed = world.signer.put(world.name, size=size, content_type="text/plain", expires_in=60)

    async def half() -> AsyncIterator[bytes]:
        yield bytes(size // 2)

    with pytest.raises(ValueError, match="short"):
        await world.http.request("PUT", signed.url, headers=signed.headers, body=half(), content_length=size)
    async with asyncio.timeout(20):
        while await world.store.is_being_written(world.name):
            pass  # MinIO has not noticed yet
    assert await world.found() is None
    whole = await world.http.request("PUT", signed.url, headers=signed.headers, body=bytes(size))
    assert whole.status == 200


@ON_MINIO
async def test_a_put_under_way_can_be_seen_without_waiting_for_it(world: World) -> None:
    size = 1024 * 1024
    signed = world.signer.put(world.name, size=size, content_type="text/plain", expires_in=60)
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield bytes(size - 1)
        await go_on.wait()
        yield b"."

    put = asyncio.create_task(
        world.http.request("PUT", signed.url, headers=signed.headers, body=slowly(), content_length=size)
    )
    async with asyncio.timeout(20):
        while not await world.store.is_being_written(world.name):
            pass  # MinIO has not read the request yet
        assert await world.found() is None
    go_on.set()
    assert (await put).status == 200
    assert await world.found()
    assert not await world.store.is_being_written(world.name)


async def test_a_download_of_a_packed_message_shows_that_message_only(world: World) -> None:
    await world.put(world.ticket())
    [url] = world.signer.get_many([GetRequest(world.name, "application/json", (4, 6))], expires_in=60)
    answer = await world.http.request("GET", url, headers={"Range": "bytes=4-6"})
    assert (answer.status, answer.body) == (206, BODY[4:7])
    assert answer.headers["content-type"] == "application/json"
    for headers in ({"Range": "bytes=0-6"}, {"Range": "bytes=4-7"}, {"Range": "bytes=0-1,4-6"}, {}):
        answer = await world.http.request("GET", url, headers=headers)
        assert 400 <= answer.status < 500
        assert BODY[4:7] not in answer.body


async def test_a_download_of_a_whole_object_may_be_resumed_by_range(world: World) -> None:
    await world.put(world.ticket())
    [url] = world.signer.get_many([GetRequest(world.name, "video/mp4")], expires_in=60)
    whole = await world.http.request("GET", url)
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, BODY, "video/mp4")
    rest = await world.http.request("GET", url, headers={"Range": "bytes=4-"})
    assert (rest.status, rest.body) == (206, BODY[4:])
    forged = url.replace("video%2Fmp4", "text%2Fhtml")
    assert (await world.http.request("GET", forged)).status == 403


async def test_a_damaged_part_is_refused(world: World) -> None:
    multipart = await world.store.create_multipart(world.name, content_type="text/plain", metadata={})
    md5 = hashlib.md5(BODY).hexdigest()
    signed = world.signer.put_part(world.name, multipart_id=multipart, number=1, size=len(BODY), expires_in=60, md5=md5)
    assert (await world.put(signed, BODY[::-1])).status == 400
    assert (await world.put(signed, headers={})).status in (400, 403)
    assert (await world.put(signed, BODY[1:])).status == 403
    assert await world.store.list_parts(world.name, multipart) == []
    assert (await world.put(signed)).status == 200
    parts = await world.store.list_parts(world.name, multipart)
    assert parts
    assert [(part.number, part.size, part.etag) for part in parts] == [(1, len(BODY), md5)]


async def test_a_large_payload_goes_up_and_down_in_pieces(world: World) -> None:
    size = 48 * 1024 * 1024
    block = bytes(range(256)) * 1024

    async def upload() -> AsyncIterator[bytes]:
        for _ in range(size // len(block)):
            yield block

    signed = world.signer.put(world.name, size=size, content_type="text/plain", expires_in=60)
    answer = await world.http.request("PUT", signed.url, headers=signed.headers, body=upload(), content_length=size)
    assert answer.status == 200
    [url] = world.signer.get_many([GetRequest(world.name, "text/plain")], expires_in=60)
    digest, expected = hashlib.sha256(), hashlib.sha256()
    async with world.http.stream("GET", url) as download:
        assert download.headers["content-length"] == str(size)
        async for chunk in download.chunks():
            digest.update(chunk)
    for _ in range(size // len(block)):
        expected.update(block)
    assert digest.digest() == expected.digest()
