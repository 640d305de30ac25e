"""One contract, two stores: the fake that services are tested with, and MinIO through our S3 adapter."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from minitoolstream.adapters.memory.payloads import MemoryPayloads
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.signer import S3Signer
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import MIN_PART_BYTES
from minitoolstream.net.http1 import HttpClient
from minitoolstream.ports import PayloadStore, StoredPart
from tests.servers import MinioServer


class Producer(Protocol):
    """What a holder of a ticket does, for either store."""

    async def put(self, name: str, body: bytes) -> None: ...

    async def put_part(self, name: str, multipart_id: str, number: int, body: bytes) -> str: ...

    def putting(self, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Inside, a PUT on the name is under way."""


class MemoryProducer:
    def __init__(self, store: MemoryPayloads) -> None:
        self._store = store

    async def put(self, name: str, body: bytes) -> None:
        self._store.client_put(name, body)

    async def put_part(self, name: str, multipart_id: str, number: int, body: bytes) -> str:
        return self._store.client_put_part(name, multipart_id, number, body)

    @contextlib.asynccontextmanager
    async def putting(self, name: str) -> AsyncIterator[None]:
        self._store.being_written.add(name)
        yield
        self._store.being_written.remove(name)
        self._store.client_put(name, b"late")


class MinioProducer:
    def __init__(self, store: PayloadStore, signer: S3Signer, http: HttpClient) -> None:
        self._store = store
        self._signer = signer
        self._http = http

    async def put(self, name: str, body: bytes) -> None:
        signed = self._signer.put(name, size=len(body), content_type="text/plain", expires_in=60)
        answer = await self._http.request("PUT", signed.url, headers=signed.headers, body=body)
        assert answer.status == 200

    async def put_part(self, name: str, multipart_id: str, number: int, body: bytes) -> str:
        signed = self._signer.put_part(name, multipart_id=multipart_id, number=number, size=len(body), expires_in=60)
        answer = await self._http.request("PUT", signed.url, headers=signed.headers, body=body)
        assert answer.status == 200
        return answer.headers["etag"].strip('"')

    @contextlib.asynccontextmanager
    async def putting(self, name: str) -> AsyncIterator[None]:
        under_way, go_on = asyncio.Event(), asyncio.Event()
        size = 1024 * 1024

        async def body() -> AsyncIterator[bytes]:
            yield bytes(size - 1)
            under_way.set()
            await go_on.wait()
            yield b"."

        signed = self._signer.put(name, size=size, content_type="text/plain", expires_in=60)
        put = asyncio.create_task(
            self._http.request("PUT", signed.url, headers=signed.headers, body=body(), content_length=size)
        )
        await under_way.wait()
        try:
            async with asyncio.timeout(20):
                while not await self._store.is_being_written(name):
                    pass  # MinIO has not read the request yet
            yield
        finally:
            go_on.set()
            assert (await put).status == 200


@pytest.fixture(params=["memory", "minio"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PayloadStore, Producer]]:
    if request.param == "memory":
        fake = MemoryPayloads()
        yield fake, MemoryProducer(fake)
        return
    server: MinioServer = request.getfixturevalue("minio_server")
    sigv4 = SigV4(server.endpoint, server.bucket, server.region, server.access_key, server.secret_key)
    http = HttpClient()
    real = S3Payloads(sigv4)
    yield real, MinioProducer(real, S3Signer(sigv4), http)
    await real.close()
    await http.close()


@pytest.fixture
def store(both: tuple[PayloadStore, Producer]) -> PayloadStore:
    return both[0]


@pytest.fixture
def producer(both: tuple[PayloadStore, Producer]) -> Producer:
    return both[1]


@pytest.fixture
def prefix() -> str:
    return f"m/contract/{uuid.uuid4().hex}/"


def md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


async def test_the_store_tells_its_time(store: PayloadStore) -> None:
    assert abs(await store.now_ms() - time.time() * 1000) < 60_000


async def test_a_new_object_is_found_with_its_size_and_etag(store: PayloadStore, prefix: str) -> None:
    name = prefix + "a"
    assert await store.find(name) is None
    await store.put_new(name, [b"hello ", b"world"], content_type="text/plain")
    found = await store.find(name)
    assert found
    assert (found.name, found.size, found.etag) == (name, 11, md5(b"hello world"))


async def test_an_object_tells_its_size_its_type_and_what_was_sent_with_it(store: PayloadStore, prefix: str) -> None:
    name = prefix + "a"
    assert await store.about(name) is None
    metadata = {"mts-producer": "till%207", "mts-seqno": "9"}
    multipart = await store.create_multipart(name, content_type="text/csv", metadata=metadata)
    assert await store.about(name) is None
    await store.abort_multipart(name, multipart)
    await store.put_new(name, b"hello", content_type="text/plain")
    about = await store.about(name)
    assert about
    assert (about.size, about.content_type, dict(about.metadata)) == (5, "text/plain", {})
    assert abs(about.modified - time.time()) < 60


async def test_a_fresh_object_is_stored_as_it_is(store: PayloadStore, prefix: str) -> None:
    await store.put_fresh(prefix + "fresh", [b"hello ", b"world"], content_type="text/plain")
    assert await store.get_range(prefix + "fresh", 0, 10) == b"hello world"
    about = await store.about(prefix + "fresh")
    assert about
    assert (about.size, about.content_type) == (11, "text/plain")


async def test_an_existing_object_is_never_overwritten(store: PayloadStore, prefix: str) -> None:
    await store.put_new(prefix + "a", b"first", content_type="text/plain")
    with pytest.raises(MtsError) as error:
        await store.put_new(prefix + "a", b"second", content_type="text/plain")
    assert (error.value.code, error.value.retryable) == ("already_exists", False)
    assert await store.get_range(prefix + "a", 0, 4) == b"first"


async def test_a_large_body_in_many_pieces_arrives_whole(store: PayloadStore, prefix: str) -> None:
    frames = [bytes([i % 256]) * 4099 for i in range(500)]
    await store.put_new(prefix + "pack", frames, content_type="application/octet-stream")
    whole = b"".join(frames)
    assert await store.get_range(prefix + "pack", 0, len(whole) - 1) == whole
    assert await store.get_range(prefix + "pack", 5000, 9000) == whole[5000:9001]


async def test_the_begin_of_an_object_comes_with_the_size_of_all(store: PayloadStore, prefix: str) -> None:
    await store.put_new(prefix + "a", b"hello world", content_type="text/plain")
    await store.put_new(prefix + "empty", b"", content_type="text/plain")
    assert await store.get_begin(prefix + "a", 5) == (b"hello", 11)
    assert await store.get_begin(prefix + "a", 11) == (b"hello world", 11)
    assert await store.get_begin(prefix + "a", 99) == (b"hello world", 11)
    assert await store.get_begin(prefix + "empty", 5) == (b"", 0)
    with pytest.raises(MtsError) as error:
        await store.get_begin(prefix + "b", 5)
    assert error.value.code == "payload_missing"


async def test_reading_what_is_not_there_says_so(store: PayloadStore, prefix: str) -> None:
    await store.put_new(prefix + "short", b"12345", content_type="text/plain")
    for name, first, last in (("gone", 0, 4), ("short", 0, 5), ("short", 5, 9), ("short", 90, 99)):
        with pytest.raises(MtsError) as error:
            await store.get_range(prefix + name, first, last)
        assert error.value.code == "payload_missing"


async def test_a_whole_object_must_have_the_size_that_is_expected(store: PayloadStore, prefix: str) -> None:
    for name, body in (("five", b"12345"), ("empty", b"")):
        await store.put_new(prefix + name, body, content_type="text/plain")
        assert await store.get_whole(prefix + name, len(body)) == body
    for name, size, code in (("five", 4, "size_mismatch"), ("five", 6, "size_mismatch"), ("five", 0, "size_mismatch")):
        with pytest.raises(MtsError) as error:
            await store.get_whole(prefix + name, size)
        assert error.value.code == code
    with pytest.raises(MtsError) as error:
        await store.get_whole(prefix + "gone", 5)
    assert error.value.code == "payload_missing"


async def test_an_object_is_not_found_by_the_beginning_of_its_name(
    store: PayloadStore, producer: Producer, prefix: str
) -> None:
    await producer.put(prefix + "ab", b"1")
    await producer.put(prefix + "a/b", b"1")
    assert await store.find(prefix + "a") is None


@pytest.mark.parametrize("odd", ["a b", "a+b", "a%2Bb", "ü-ж", "q?x=1&y", "semi;colon", "quote'\"", "<&>", "~tilde#"])
async def test_any_name_goes_there_and_back(store: PayloadStore, producer: Producer, prefix: str, odd: str) -> None:
    name = prefix + odd
    await producer.put(name, b"1")
    found = await store.find(name)
    assert found
    assert found.name == name
    assert await store.get_range(name, 0, 0) == b"1"
    assert [entry.name for entry in await store.list_after(prefix, "", 10)] == [name]
    assert await store.delete_many([name]) == [name]
    assert await store.find(name) is None


async def test_listing_is_in_order_after_a_key_and_below_a_prefix(store: PayloadStore, prefix: str) -> None:
    names = [f"{prefix}{i:02}" for i in range(12)]
    for name in reversed(names):
        await store.put_new(name, b"x", content_type="text/plain")
    await store.put_new(prefix[:-1] + "-other/00", b"x", content_type="text/plain")
    assert [entry.name for entry in await store.list_after(prefix, "", 100)] == names
    assert [entry.name for entry in await store.list_after(prefix, names[3], 5)] == names[4:9]
    assert await store.list_after(prefix, names[-1], 5) == []
    assert await store.list_after(prefix, "", 0) == []


async def test_more_than_a_page_is_listed_and_deleted(store: PayloadStore, producer: Producer, prefix: str) -> None:
    names = [f"{prefix}{i:04}" for i in range(1003)]
    await asyncio.gather(*(producer.put(name, b"") for name in names))
    assert [entry.name for entry in await store.list_after(prefix, "", 2000)] == names
    assert [entry.name for entry in await store.list_after(prefix, "", 1001)] == names[:1001]
    assert sorted(await store.delete_many(names)) == names
    assert await store.list_after(prefix, "", 10) == []


async def test_deleting_what_is_gone_already_counts_as_gone(store: PayloadStore, prefix: str) -> None:
    await store.put_new(prefix + "a", b"x", content_type="text/plain")
    assert sorted(await store.delete_many([prefix + "a", prefix + "never"])) == [
        prefix + "a",
        prefix + "never",
    ]
    assert await store.delete_many([prefix + "a"]) == [prefix + "a"]
    assert await store.delete_many([]) == []


async def test_a_put_under_way_is_seen_as_such_and_the_object_after_it(
    store: PayloadStore, producer: Producer, prefix: str
) -> None:
    name = prefix + "slow"
    async with producer.putting(name):
        assert await store.find(name) is None
        assert await store.is_being_written(name)
        assert not await store.is_being_written(prefix + "another")
    assert await store.find(name)
    assert not await store.is_being_written(name)


async def test_a_put_under_way_does_not_keep_the_others_from_being_deleted(
    store: PayloadStore, producer: Producer, prefix: str
) -> None:
    await producer.put(prefix + "a", b"1")
    await producer.put(prefix + "z", b"1")
    async with producer.putting(prefix + "slow"):
        names = [prefix + "a", prefix + "slow", prefix + "z"]
        assert await store.delete_many(names) == [prefix + "a", prefix + "z"]
    assert [entry.name for entry in await store.list_after(prefix, "", 10)] == [prefix + "slow"]


async def test_parts_become_one_object(store: PayloadStore, producer: Producer, prefix: str) -> None:
    name = prefix + "big"
    bodies = {1: b"a" * MIN_PART_BYTES, 2: b"the rest"}
    multipart = await store.create_multipart(
        name, content_type="video/mp4", metadata={"mts-producer": "p ü", "mts-seqno": "1"}
    )
    assert await store.list_parts(name, multipart) == []
    etags = {number: await producer.put_part(name, multipart, number, bodies[number]) for number in (2, 1)}
    assert etags == {number: md5(body) for number, body in bodies.items()}
    parts = await store.list_parts(name, multipart)
    assert parts == [StoredPart(number, len(bodies[number]), etags[number]) for number in (1, 2)]
    assert await store.find(name) is None
    assert await store.complete_multipart(name, multipart, parts) is True
    found = await store.find(name)
    assert found
    assert found.size == MIN_PART_BYTES + 8
    assert found.etag == md5(b"".join(bytes.fromhex(etags[number]) for number in (1, 2))) + "-2"
    assert await store.get_range(name, MIN_PART_BYTES - 1, MIN_PART_BYTES + 2) == b"athe"


async def test_a_multipart_is_completed_once(store: PayloadStore, producer: Producer, prefix: str) -> None:
    name = prefix + "big"
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    await producer.put_part(name, multipart, 1, b"all")
    parts = await store.list_parts(name, multipart)
    assert parts
    assert await store.complete_multipart(name, multipart, parts) is True
    assert await store.complete_multipart(name, multipart, parts) is False
    assert await store.list_parts(name, multipart) is None


async def test_the_host_itself_puts_parts(store: PayloadStore, prefix: str) -> None:
    name, bodies = f"{prefix}own-parts", [b"a" * (5 << 20), b"end"]
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    parts = [await store.put_part(name, multipart, number, body) for number, body in enumerate(bodies, 1)]
    assert [(part.number, part.size) for part in parts] == [(1, 5 << 20), (2, 3)]
    assert await store.list_parts(name, multipart) == parts
    assert await store.complete_multipart(name, multipart, parts) is True
    assert await store.get_range(name, (5 << 20) - 1, (5 << 20) + 2) == b"aend"


async def test_a_multipart_never_replaces_an_object(store: PayloadStore, producer: Producer, prefix: str) -> None:
    name = prefix + "big"
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    await producer.put_part(name, multipart, 1, b"late")
    parts = await store.list_parts(name, multipart)
    assert parts
    await producer.put(name, b"first")
    assert await store.complete_multipart(name, multipart, parts) is False
    assert await store.get_range(name, 0, 4) == b"first"


@pytest.mark.parametrize("wrong", ["etag", "missing", "order", "too small", "none"])
async def test_parts_that_do_not_fit_are_refused_and_stay(
    store: PayloadStore, producer: Producer, prefix: str, wrong: str
) -> None:
    name = prefix + "big"
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    first = b"a" * (10 if wrong == "too small" else MIN_PART_BYTES)
    one = StoredPart(1, len(first), await producer.put_part(name, multipart, 1, first))
    two = StoredPart(2, 1, await producer.put_part(name, multipart, 2, b"b"))
    parts = {
        "etag": [one, StoredPart(2, 1, md5(b"another"))],
        "missing": [one, two, StoredPart(3, 1, md5(b"c"))],
        "order": [two, one],
        "too small": [one, two],
        "none": [],
    }[wrong]
    with pytest.raises(MtsError) as error:
        await store.complete_multipart(name, multipart, parts)
    assert error.value.code == "upload_incomplete"
    assert await store.find(name) is None
    assert await store.list_parts(name, multipart) == [one, two]


async def test_a_part_sent_again_replaces_the_earlier_one(store: PayloadStore, producer: Producer, prefix: str) -> None:
    name = prefix + "big"
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    await producer.put_part(name, multipart, 1, b"old")
    await producer.put_part(name, multipart, 1, b"newer")
    assert await store.list_parts(name, multipart) == [StoredPart(1, 5, md5(b"newer"))]


async def test_an_aborted_multipart_is_gone_and_aborting_again_is_fine(
    store: PayloadStore, producer: Producer, prefix: str
) -> None:
    name = prefix + "big"
    multipart = await store.create_multipart(name, content_type="text/plain", metadata={})
    etag = await producer.put_part(name, multipart, 1, b"x")
    for _ in range(2):
        await store.abort_multipart(name, multipart)
    await store.abort_multipart(name, "never-heard-of")
    assert await store.list_parts(name, multipart) is None
    assert await store.complete_multipart(name, multipart, [StoredPart(1, 1, etag)]) is False
    assert await store.find(name) is None


async def test_a_store_that_is_there_passes_the_check(store: PayloadStore) -> None:
    await store.check()


async def test_all_unfinished_multiparts_of_a_key_are_found(store: PayloadStore, prefix: str) -> None:
    name = prefix + "big"
    begun = [await store.create_multipart(name, content_type="text/plain", metadata={}) for _ in range(2)]
    await store.create_multipart(name + "-neighbour", content_type="text/plain", metadata={})
    assert sorted(await store.list_multiparts(name)) == sorted(begun)
    await store.abort_multipart(name, begun[0])
    assert await store.list_multiparts(name) == begun[1:]
