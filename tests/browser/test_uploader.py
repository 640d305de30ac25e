"""web/upload.js when things go wrong on the way: it goes on, or says why not."""

from __future__ import annotations

import asyncio
import time
from calendar import timegm
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.conftest import Origins, add_host
from tests.browser.store_gate import DroppedError, Passage, StoreGate
from tests.live import Live, eventually

PART = 5 * 1024 * 1024
LOAD = """async ({url, token, subject, size}) => {
    Object.assign(window, await import(`${url}/web/upload.js`));
    window.file = new File([new Uint8Array(size).map((_, at) => at % 251)], "data.bin", { lastModified: 1_700_000_000_000 });
    window.options = { url, token, subject, headers: { kind: "test" } };
    window.progress = [];
}"""
UPLOAD = """uploadFile(file, { ...options, onProgress: (done) => progress.push(done) })
    .then((receipt) => ({ receipt }), ({ code, message, retryable }) => ({ code, message, retryable }))"""
Load = Callable[[str, int], Any]


def expected(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.fixture
def load(page: Page, origins: Origins, stack: Live, subject: str) -> Load:
    """Makes a file of `size` bytes ready in a page of the listed origin, for the host at `url`."""

    async def make_ready(url: str, size: int) -> None:
        await page.goto(origins.listed)
        await page.evaluate(LOAD, {"url": url, "token": stack.token, "subject": subject, "size": size})

    return make_ready


async def test_a_store_that_fails_for_a_moment_is_tried_again(
    page: Page, load: Load, stack: Live, gated: str, gate: StoreGate, subject: str
) -> None:
    dropped: list[int] = []

    def drop_each_once(passage: Passage) -> None:
        if passage.part not in dropped:
            dropped.append(passage.part)
            raise DroppedError

    size = 2 * PART + 1
    await load(gated, size)
    gate.before = drop_each_once
    try:
        answer = await page.evaluate(UPLOAD)
    finally:
        gate.before = None

    assert answer["receipt"]["state"] == "committed"
    assert sorted(dropped) == [1, 2, 3]
    (message,) = stack.messages(subject)
    assert stack.payload(message) == expected(size)
    progress = await page.evaluate("progress")
    assert progress[-1] == size
    assert max(progress) == size


async def test_an_expired_part_url_is_signed_again(
    page: Page, load: Load, stack: Live, gate: StoreGate, subject: str
) -> None:
    host = add_host(stack, MTS_MINIO_PUBLIC_ENDPOINT=gate.address, MTS_UPLOADS_TICKET_LIFE="4s")
    seen: list[Passage] = []

    def keep_the_first_until_it_is_too_late(passage: Passage) -> None:
        seen.append(passage)
        if len(seen) == 1:
            signed = timegm(time.strptime(passage.query["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
            expires = signed + int(passage.query["X-Amz-Expires"])
            eventually(lambda: time.time() > expires + 1)

    size = PART + 1
    await load(host, size)
    gate.before = keep_the_first_until_it_is_too_late
    try:
        answer = await page.evaluate(UPLOAD)
    finally:
        gate.before = None

    assert answer["receipt"]["state"] == "committed"
    assert (seen[0], 403) in gate.refused
    (message,) = stack.messages(subject)
    assert stack.payload(message) == expected(size)


@pytest.mark.parametrize("then", ["goes on", "is discarded"])
async def test_an_upload_that_was_stopped(
    page: Page, load: Load, stack: Live, gated: str, gate: StoreGate, subject: str, then: str
) -> None:
    size = 2 * PART + 1
    await load(gated, size)
    with gate.holding(lambda passage: passage.part == 3) as waiting:
        await page.evaluate(
            """() => {
                window.stop = new AbortController();
                window.stopped = uploadFile(file, { ...options, signal: stop.signal }).catch((error) => error.name);
            }"""
        )
        await asyncio.to_thread(eventually, lambda: waiting)
        name = waiting[0].path.split("/", 2)[2]
        await asyncio.to_thread(eventually, lambda: sorted(gate.stored_under(name)) == [1, 2])
        assert await page.evaluate("stop.abort(), stopped") == "AbortError"
    assert await page.evaluate("unfinishedUploads().map(({ name, size }) => ({ name, size }))") == [
        {"name": "data.bin", "size": size}
    ]

    if then == "goes on":
        answer = await page.evaluate(UPLOAD)
        assert answer["receipt"]["state"] == "committed"
        assert sorted(gate.stored_under(name)) == [1, 2, 3]
        assert (await page.evaluate("progress"))[0] == 2 * PART
    else:
        await page.evaluate("discardUpload(file, options)")
        assert stack.receipt(name.rsplit("/", 1)[1], wait=0)["state"] == "aborted"
        assert stack.messages(subject) == []
    assert await page.evaluate("unfinishedUploads()") == []


async def test_a_remembered_upload_that_has_ended_begins_anew(
    page: Page, load: Load, stack: Live, gated: str, gate: StoreGate, subject: str
) -> None:
    size = PART + 1
    await load(gated, size)
    with gate.holding(lambda passage: True) as waiting:
        await page.evaluate("uploadFile(file, options).catch(() => {}), 0")
        await asyncio.to_thread(eventually, lambda: len(waiting) == 2)
        name = waiting[0].path.split("/", 2)[2]
        await page.reload()
    stack.api("DELETE", f"/v1/uploads/{name.rsplit('/', 1)[1]}")

    await load(gated, size)
    answer = await page.evaluate(UPLOAD)

    assert answer["receipt"]["state"] == "committed"
    (message,) = stack.messages(subject)
    assert message["object_name"] != name


async def test_the_same_file_twice_at_once_is_two_messages(
    page: Page, load: Load, stack: Live, subject: str
) -> None:
    await load(stack.url, 1000)

    await page.evaluate("Promise.all([uploadFile(file, options), uploadFile(file, options)])")

    assert [stack.payload(message) for message in stack.messages(subject)] == [expected(1000)] * 2


async def test_a_store_that_cannot_be_reached_is_named(page: Page, load: Load, stack: Live, gate: StoreGate) -> None:
    closed = StoreGate(stack.minio.endpoint)
    host = add_host(stack, MTS_MINIO_PUBLIC_ENDPOINT=closed.address)
    closed.stop()
    await load(host, 10)

    answer = await page.evaluate(UPLOAD)

    assert answer["code"] == "unavailable"
    assert answer["retryable"]
    assert answer["message"].startswith(f"cannot reach the object store at http://{closed.address}: it is down, or")


async def test_what_is_wrong_with_the_request_is_said_in_the_words_of_the_api(
    page: Page, load: Load, stack: Live
) -> None:
    await load(stack.url, 10)

    answer = await page.evaluate("options.subject = 'not a subject'; " + UPLOAD)

    assert answer["code"] == "bad_request"
    assert "subject 'not a subject' is not valid" in answer["message"]
