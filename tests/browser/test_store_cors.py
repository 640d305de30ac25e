"""What MinIO allows a browser on another origin to send and to read."""

from __future__ import annotations

import base64
import hashlib

import pytest
from playwright.async_api import Page

from tests.browser.conftest import Origins
from tests.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")  # one browser for all
PART = 5 * 1024 * 1024
PUT = """async ({url, headers, size}) => {
    const answer = await fetch(url, { method: "PUT", headers, body: new Blob(["x".repeat(size)]) });
    return { status: answer.status, etag: answer.headers.get("etag"), text: await answer.text() };
}"""


async def test_a_page_may_send_every_header_of_a_ticket_and_read_the_etag(
    page: Page, origins: Origins, stack: Live, subject: str
) -> None:
    digest = hashlib.sha256(b"x" * 10).hexdigest()
    ticket = stack.ticket(subject, 10, sha256=digest, producer_id="a browser", seqno=1, content_type="text/plain")
    names = {name.lower() for name in ticket["headers"]}
    assert names == {
        "content-type",
        "if-none-match",
        "x-amz-checksum-sha256",
        "x-amz-meta-mts-producer",
        "x-amz-meta-mts-seqno",
    }
    await page.goto(origins.listed)

    first = await page.evaluate(PUT, {"url": ticket["url"], "headers": ticket["headers"], "size": 10})
    again = await page.evaluate(PUT, {"url": ticket["url"], "headers": ticket["headers"], "size": 10})

    assert (first["status"], first["etag"]) == (200, f'"{hashlib.md5(b"x" * 10).hexdigest()}"')
    assert (again["status"], "<Code>PreconditionFailed</Code>" in again["text"]) == (412, True)


async def test_a_page_may_have_a_part_checked_by_its_md5(
    page: Page, origins: Origins, stack: Live, subject: str
) -> None:
    ticket = stack.ticket(subject, PART + 1)
    right, wrong = (hashlib.md5(text * PART).hexdigest() for text in (b"x", b"y"))
    await page.goto(origins.listed)
    answers = []
    for md5 in (right, wrong):
        wanted = {"parts": [{"number": 1, "md5": md5}]}
        (part,) = stack.api("POST", f"/v1/uploads/{ticket['upload_id']}/parts", wanted).json["urls"]
        assert part["headers"] == {"Content-MD5": base64.b64encode(bytes.fromhex(md5)).decode()}
        answers.append(await page.evaluate(PUT, {"url": part["url"], "headers": part["headers"], "size": PART}))

    assert (answers[0]["status"], answers[0]["etag"]) == (200, f'"{right}"')
    assert (answers[1]["status"], "<Code>BadDigest</Code>" in answers[1]["text"]) == (400, True)


async def test_a_page_reads_one_message_of_a_pack_and_not_its_neighbour(
    page: Page, origins: Origins, stack: Live, subject: str
) -> None:
    body = b'{"data": "first"}\n{"data": "second"}'
    stack.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})
    first, second = stack.messages(subject)
    await page.goto(origins.listed)

    read = """async ({url, range}) => {
        const answer = await fetch(url, { headers: { Range: range } });
        return [answer.status, await answer.text(), answer.headers.get("content-range")];
    }"""
    status, text, content_range = await page.evaluate(read, {"url": second["url"], "range": second["range"]})
    other = await page.evaluate(read, {"url": second["url"], "range": first["range"]})

    assert (status, text) == (206, "second")
    assert content_range.startswith(second["range"].replace("=", " ") + "/")
    assert other[0] == 403
