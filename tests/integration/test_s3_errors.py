"""What our S3 adapter makes of a store that is down, refuses, or answers nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from minitoolstream.adapters.s3.bucket import S3Bucket
from minitoolstream.adapters.s3.client import S3Payloads
from minitoolstream.adapters.s3.sigv4 import SigV4
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.lifecycle import wanted_rules
from minitoolstream.ports import ObjectInfo, StoredPart
from tests.servers import MinioServer

SECRET = "the-secret-key"
PARTS = [StoredPart(1, 1, "0" * 32)]
LEAKY = "AKIDEXAMPLE StringToSign X-Amz-Signature=abcdef"


def error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{LEAKY}</Message></Error>".encode()


@dataclass
class Answers:
    """A store that gives these answers in turn, the last one for ever; None hangs up."""

    script: list[tuple[int, bytes] | None]
    asked: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                sizes = [line for line in head.split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)
                self.asked.append(head.split()[0])
                answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if answer is None:
                    break
                status, body = answer
                content = b"" if head.startswith("HEAD") else body
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), content))
        writer.close()


def payloads(endpoint: str) -> S3Payloads:
    return S3Payloads(SigV4(endpoint, "bucket-1", "us-east-1", "AKIDEXAMPLE", SECRET))


@contextlib.asynccontextmanager
async def store_that_says(*script: tuple[int, bytes] | None) -> AsyncIterator[tuple[S3Payloads, Answers]]:
    answers = Answers(list(script))
    server = await asyncio.start_server(answers.serve, "127.0.0.1", 0)
    store = payloads(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield store, answers
    finally:
        await store.close()
        server.close()


CALLS: dict[str, Callable[[S3Payloads], Awaitable[object]]] = {
    "put_new": lambda store: store.put_new("a", b"x", content_type="text/plain"),
    "get_range": lambda store: store.get_range("a", 0, 0),
    "find": lambda store: store.find("a"),
    "is_being_written": lambda store: store.is_being_written("a"),
    "list_after": lambda store: store.list_after("a/", "", 10),
    "delete_many": lambda store: store.delete_many(["a"]),
    "create_multipart": lambda store: store.create_multipart("a", content_type="text/plain", metadata={}),
    "list_parts": lambda store: store.list_parts("a", "id"),
    "complete_multipart": lambda store: store.complete_multipart("a", "id", PARTS),
    "abort_multipart": lambda store: store.abort_multipart("a", "id"),
    "check": lambda store: store.check(),
}


async def failure(call: str, store: S3Payloads) -> MtsError:
    with pytest.raises(MtsError) as caught:
        await CALLS[call](store)
    for secret in (SECRET, "AKIDEXAMPLE", "X-Amz-", "StringToSign"):
        assert secret not in str(caught.value)
        assert secret not in str(caught.value.__cause__)
    return caught.value


@pytest.mark.parametrize("call", CALLS)
async def test_a_store_that_is_down_is_unavailable(call: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    problem = await failure(call, payloads(f"http://127.0.0.1:{port}"))
    assert (problem.code, problem.retryable) == ("unavailable", True)
    assert "does not answer" in problem.message


@pytest.mark.parametrize("answer", [None, (500, error("InternalError")), (503, error("SlowDown")), (502, b"<html>")])
@pytest.mark.parametrize("call", CALLS)
async def test_a_store_in_trouble_is_unavailable(call: str, answer: tuple[int, bytes] | None) -> None:
    async with store_that_says(answer) as (store, answers):
        assert (await failure(call, store)).code == "unavailable"
    reads = {"get_range", "find", "list_after", "list_parts", "abort_multipart"}
    assert len(answers.asked) == (2 if call in reads else 1)


@pytest.mark.parametrize("call", CALLS)
async def test_refused_credentials_are_named_as_such(call: str) -> None:
    async with store_that_says((403, error("SignatureDoesNotMatch"))) as (store, answers):
        problem = await failure(call, store)
    assert problem.code == "unavailable"
    assert "credentials" in problem.message
    assert len(answers.asked) == 1


@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("is_being_written", "delete_many")])
async def test_a_missing_bucket_is_named_as_such(call: str) -> None:
    async with store_that_says((404, error("NoSuchBucket"))) as (store, _):
        problem = await failure(call, store)
    assert problem.code == "unavailable"
    assert "bucket-1 does not exist" in problem.message


@pytest.mark.parametrize("call", CALLS)
async def test_a_request_the_store_does_not_like_is_our_fault(call: str) -> None:
    async with store_that_says((400, error("Malformed"))) as (store, answers):
        assert (await failure(call, store)).code == "internal"
    assert len(answers.asked) == 1


@pytest.mark.parametrize("call", ["find", "list_after", "create_multipart", "list_parts"])
async def test_an_answer_that_is_not_xml_is_an_error(call: str) -> None:
    async with store_that_says((200, b"<html><p>")) as (store, _):
        assert (await failure(call, store)).code == "unavailable"


async def test_a_read_is_tried_once_more() -> None:
    entry = b"<Contents><Key>a</Key><Size>1</Size><ETag>&quot;e&quot;</ETag></Contents>"
    listing = b"<ListBucketResult>" + entry + b"</ListBucketResult>"
    for trouble in (None, (503, error("SlowDown"))):
        async with store_that_says(trouble, (200, listing)) as (store, answers):
            assert await store.list_after("a", "", 1) == [ObjectInfo("a", 1, "e")]
            assert len(answers.asked) == 2


async def test_an_object_that_is_not_there_is_known_without_a_listing() -> None:
    async with store_that_says((404, error("NoSuchKey"))) as (store, answers):
        assert await store.find("a") is None
    assert answers.asked == ["HEAD", "GET"]


async def test_a_404_without_words_does_not_say_that_an_object_is_missing() -> None:
    async with store_that_says((404, b"<html>not here")) as (store, _):
        with pytest.raises(MtsError):
            await store.find("a")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((200, b"<CompleteMultipartUploadResult/>"), True),
        ((412, error("PreconditionFailed")), False),
        ((404, error("NoSuchUpload")), False),
        ((200, b"  \n" + error("NoSuchUpload").partition(b"?>")[2]), False),
        ((200, error("InternalError")), "unavailable"),
        ((200, error("SlowDown")), "unavailable"),
        ((409, error("ConditionalRequestConflict")), "unavailable"),
        ((400, error("InvalidPart")), "upload_incomplete"),
    ],
)
async def test_every_end_of_a_multipart_is_told_apart(answer: tuple[int, bytes], outcome: bool | str) -> None:
    async with store_that_says(answer) as (store, _):
        if isinstance(outcome, bool):
            assert await store.complete_multipart("a", "id", PARTS) is outcome
        else:
            assert (await failure("complete_multipart", store)).code == outcome


async def test_what_could_not_be_deleted_is_not_called_gone() -> None:
    result = (
        b"<DeleteResult><Deleted><Key>a&amp;b</Key></Deleted>"
        b"<Error><Key>c</Key><Code>AccessDenied</Code></Error><Error><Key>d</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )
    looks = [(200, b"")] * 3
    async with store_that_says(*looks, (200, result)) as (store, _):
        assert await store.delete_many(["a&b", "c", "d"]) == ["a&b", "d"]


async def test_wrong_keys_and_a_wrong_bucket_are_found_by_the_check(minio_server: MinioServer) -> None:
    server = minio_server
    wrong_key = SigV4(server.endpoint, server.bucket, server.region, server.access_key, "wrong" * 4)
    wrong_bucket = SigV4(
        server.endpoint, "no-such-bucket", server.region, server.root.access_key, server.root.secret_key
    )
    for sigv4, says in ((wrong_key, "credentials"), (wrong_bucket, "does not exist")):
        store = S3Payloads(sigv4)
        with pytest.raises(MtsError, match=says) as caught:
            await store.check()
        assert caught.value.code == "unavailable"
        await store.close()


async def test_a_store_that_does_not_tell_its_time_is_not_taken_at_any() -> None:
    async with store_that_says((200, b"")) as (store, _):
        with pytest.raises(MtsError, match="does not tell its time") as raised:
            await store.now_ms()
    assert raised.value.retryable


async def test_a_user_that_may_not_look_after_the_lifecycle_is_told_what_it_needs() -> None:
    async with store_that_says((403, error("AccessDenied"))) as (store, _):
        bucket = S3Bucket(store.requests)
        for call in (bucket.lifecycle(), bucket.set_lifecycle(wanted_rules([])), bucket.state()):
            with pytest.raises(MtsError, match="s3:PutLifecycleConfiguration") as raised:
                await call
            assert raised.value.code == "not_configured"
            assert LEAKY not in raised.value.message


async def test_a_bucket_without_a_lifecycle_has_no_rules_and_one_that_is_missing_is_an_error() -> None:
    async with store_that_says((404, error("NoSuchLifecycleConfiguration"))) as (store, _):
        assert await S3Bucket(store.requests).lifecycle() == []
    async with store_that_says((404, error("NoSuchBucket"))) as (store, _):
        with pytest.raises(MtsError, match="does not exist"):
            await S3Bucket(store.requests).lifecycle()


async def test_taking_away_the_last_rule_deletes_the_configuration() -> None:
    async with store_that_says((204, b"")) as (store, answers):
        await S3Bucket(store.requests).set_lifecycle([])
    assert answers.asked == ["DELETE"]
