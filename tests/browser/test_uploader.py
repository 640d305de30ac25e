"""web/upload.js when things go wrong on the way: it goes on, or says why not."""

from __future__ import annotations

import asyncio
import time
from calendar import timegm
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.conftest import Gated, Origins, add_host
from tests.browser.store_gate import BusyError, DroppedError, Passage, StoreGate
from tests.live import Live, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")  # one browser for all
PART = 5 * 1024 * 1024
LOAD = """async ({url, token, subject, size}) => {
    Object.assign(window, await import(`${url}/web/upload.js`));
    const bytes = new Uint8Array(size).map((_, at) => at % 251);
    window.file = new File([bytes], "data.bin", { lastModified: 1_700_000_000_000 });
    window.options = { url, token, subject, headers: { kind: "test" } };
    window.progress = [];
}"""
UPLOAD = """uploadFile(file, { ...options, onProgress: (done) => progress.push(done) })
    .catch(({ code, message, retryable }) => ({ code, message, retryable }))"""


@dataclass
class Uploader:
    """A page of the listed origin with the module and a file."""

    page: Page
    origin: str
    token: str
    subject: str

    async def load(self, url: str, size: int) -> None:
        await self.page.goto(self.origin)
        about = {"url": url, "token": self.token, "subject": self.subject, "size": size}
        await self.page.evaluate(LOAD, about)

    async def run(self, script: str = UPLOAD) -> Any:
        return await self.page.evaluate(script)


@pytest.fixture
def uploader(page: Page, origins: Origins, stack: Live, subject: str) -> Uploader:
    return Uploader(page, origins.listed, stack.token, subject)


def payload_of(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def test_a_store_in_trouble_is_tried_again(uploader: Uploader, stack: Live, gated: Gated) -> None:
    tried: list[int] = []

    def begin_badly(passage: Passage) -> None:
        tried.append(passage.part)
        if passage.part == 1 and tried.count(1) == 1:
            raise BusyError
        if passage.part == 2 and tried.count(2) <= 3:  # the browser itself tries once more, in silence
            raise DroppedError

    size = 2 * PART + 1
    await uploader.load(gated.url, size)
    with gated.gate.ruled(begin_badly):
        receipt = await uploader.run()

    assert receipt["state"] == "committed"
    assert sorted(tried) == [1, 1, 2, 2, 2, 2, 3]
    (message,) = stack.messages(uploader.subject)
    assert stack.payload(message) == payload_of(size)
    progress = await uploader.run("progress")
    assert progress[-1] == max(progress) == size


async def test_an_expired_part_url_is_signed_again(uploader: Uploader, stack: Live, gated: Gated) -> None:
    host = add_host(stack, MTS_MINIO_PUBLIC_ENDPOINT=gated.gate.address, MTS_UPLOADS_TICKET_LIFE="4s")
    seen: list[Passage] = []

    def keep_the_first_until_it_is_too_late(passage: Passage) -> None:
        seen.append(passage)
        if passage is seen[0]:
            signed = timegm(time.strptime(passage.query["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
            expires = signed + int(passage.query["X-Amz-Expires"])
            eventually(lambda: time.time() > expires + 1)

    size = PART + 1
    await uploader.load(host, size)
    with gated.gate.ruled(keep_the_first_until_it_is_too_late):
        receipt = await uploader.run()

    assert receipt["state"] == "committed"
    assert (seen[0], 403) in gated.gate.refused
    (message,) = stack.messages(uploader.subject)
    assert stack.payload(message) == payload_of(size)


async def stop_before_the_last_part(uploader: Uploader, gated: Gated) -> Passage:
    """Upload two of three parts and stop; the PUT that was on its way is returned."""
    await uploader.load(gated.url, 2 * PART + 1)
    with gated.gate.holding(3) as waiting:
        await uploader.run(
            """() => {
                window.stop = new AbortController();
                window.stopped = uploadFile(file, { ...options, signal: stop.signal }).catch((error) => error.name);
            }"""
        )
        await asyncio.to_thread(eventually, lambda: waiting)
        name = waiting[0].object_name
        await asyncio.to_thread(eventually, lambda: sorted(gated.gate.stored_under(name)) == [1, 2])
        assert await uploader.run("stop.abort(), stopped") == "AbortError"
    unfinished = await uploader.run("unfinishedUploads().map(({ name, size }) => [name, size])")
    assert unfinished == [["data.bin", 2 * PART + 1]]
    return waiting[0]


async def test_a_stopped_upload_goes_on(uploader: Uploader, gated: Gated) -> None:
    stopped = await stop_before_the_last_part(uploader, gated)

    receipt = await uploader.run()

    assert receipt["upload_id"] == stopped.upload_id
    assert sorted(gated.gate.stored_under(stopped.object_name)) == [1, 2, 3]
    assert (await uploader.run("progress"))[0] == 2 * PART
    assert await uploader.run("unfinishedUploads()") == []


async def test_a_stopped_upload_can_be_discarded(uploader: Uploader, stack: Live, gated: Gated) -> None:
    stopped = await stop_before_the_last_part(uploader, gated)

    await uploader.run("discardUpload(file, options)")

    assert stack.receipt(stopped.upload_id, wait=0)["state"] == "aborted"
    assert await uploader.run("unfinishedUploads()") == []


@pytest.mark.parametrize("end", ["aborted", "forgotten"])
async def test_a_remembered_upload_that_has_ended_begins_anew(
    uploader: Uploader, stack: Live, gated: Gated, end: str
) -> None:
    stopped = await stop_before_the_last_part(uploader, gated)
    if end == "aborted":
        stack.api("DELETE", f"/v1/uploads/{stopped.upload_id}")
    else:
        unknown = f"{stopped.upload_id[:-12]}000000000000"
        replaced = f"localStorage['mts-uploads'].replace('{stopped.upload_id}', '{unknown}')"
        await uploader.run(f"localStorage.setItem('mts-uploads', {replaced})")

    receipt = await uploader.run()

    assert receipt["state"] == "committed"
    assert receipt["upload_id"] != stopped.upload_id
    assert len(stack.messages(uploader.subject)) == 1


async def test_the_same_file_twice_at_once_is_two_messages(uploader: Uploader, stack: Live, gated: Gated) -> None:
    first: list[Passage] = []

    def let_the_second_pass_first(passage: Passage) -> None:
        if not first:
            first.append(passage)
            eventually(lambda: stack.messages(uploader.subject))

    await uploader.load(gated.url, 1000)
    with gated.gate.ruled(let_the_second_pass_first):
        await uploader.run("void (window.first = uploadFile(file, options))")
        await asyncio.to_thread(eventually, lambda: first)
        await uploader.run("Promise.all([uploadFile(file, options), first])")

    payloads = [stack.payload(message) for message in stack.messages(uploader.subject)]
    assert payloads == [payload_of(1000)] * 2


async def test_a_store_that_cannot_be_reached_is_named(uploader: Uploader, stack: Live) -> None:
    closed = StoreGate(stack.minio.endpoint)
    host = add_host(stack, MTS_MINIO_PUBLIC_ENDPOINT=closed.address)
    closed.stop()
    await uploader.load(host, 10)

    error = await uploader.run()

    assert (error["code"], error["retryable"]) == ("unavailable", True)
    assert error["message"].startswith(f"cannot reach the object store at http://{closed.address}: it is down, or")


async def test_a_bad_request_is_said_in_the_words_of_the_api(uploader: Uploader, stack: Live) -> None:
    uploader.subject = "not a subject"
    await uploader.load(stack.url, 10)

    error = await uploader.run()

    assert error["code"] == "bad_request"
    assert "subject 'not a subject' is not valid" in error["message"]
