"""Uploads from a page on another origin, as its users see them: examples/browser with a real file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Origins
from tests.browser.store_gate import StoreGate
from tests.live import Live, eventually

PART = 5 * 1024 * 1024


async def choose(page: Page, origin: str, host: str, token: str, subject: str, file: Path) -> None:
    """Open the example, fill it in and press the button."""
    await page.goto(origin)
    await page.get_by_label("Host").fill(host)
    await page.get_by_label("Token").fill(token)
    await page.get_by_label("Subject").fill(subject)
    await page.get_by_label("File").set_input_files(file)
    await page.get_by_role("button", name="Upload").click()


@pytest.mark.parametrize("payload", [b"hello from afar", b""], ids=["some bytes", "empty"])
async def test_a_listed_origin_publishes_with_one_put(
    page: Page, origins: Origins, stack: Live, subject: str, tmp_path: Path, payload: bytes
) -> None:
    file = tmp_path / "grüße.txt"
    file.write_bytes(payload)

    await choose(page, origins.listed, stack.url, stack.token, subject, file)

    await expect(page.locator("output")).to_have_text(f"Message {await last(stack, subject)} of {subject}")
    (message,) = stack.messages(subject)
    assert message["content_type"] == "text/plain"
    assert message["headers"] == {"filename": "grüße.txt"}
    assert len(message["sha256"]) == 64
    assert stack.payload(message) == payload


async def last(stack: Live, subject: str) -> int:
    """The subject's latest sequence, as soon as it has one."""

    def latest() -> int:
        return int(stack.api("GET", f"/v1/subjects/{subject}/latest").json["latest_sequence"])

    return await asyncio.to_thread(eventually, latest)


async def test_a_large_file_goes_on_after_a_reload(
    page: Page, origins: Origins, stack: Live, gated: str, gate: StoreGate, subject: str, tmp_path: Path
) -> None:
    payload = os.urandom(5 * PART + 12345)
    file = tmp_path / "video.mp4"
    file.write_bytes(payload)

    with gate.holding(lambda passage: passage.part in {2, 4, 5, 6}) as waiting:
        await choose(page, origins.listed, gated, stack.token, subject, file)
        # Parts 1 and 3 are in the store, and the four at a time that follow hang.
        await asyncio.to_thread(eventually, lambda: len(waiting) == 4)
        name = waiting[0].path.split("/", 2)[2]
        upload = f"/v1/uploads/{name.rsplit('/', 1)[1]}"
        arrived = stack.api("GET", f"{upload}/parts").json["arrived"]
        assert [part["number"] for part in arrived] == [1, 3]
        await page.reload()
    await choose(page, origins.listed, gated, stack.token, subject, file)

    await expect(page.locator("output")).to_contain_text("Message")
    assert sorted(gate.stored_under(name)) == [1, 2, 3, 4, 5, 6]
    (message,) = stack.messages(subject)
    assert message["object_name"] == name
    assert stack.payload(message) == payload


async def test_a_reload_before_the_answer_does_not_publish_twice(
    page: Page, origins: Origins, stack: Live, gated: str, gate: StoreGate, subject: str, tmp_path: Path
) -> None:
    file = tmp_path / "order.json"
    file.write_bytes(b'{"pay": 100}')

    with gate.holding(lambda passage: True, answers=True) as waiting:
        await choose(page, origins.listed, gated, stack.token, subject, file)
        await asyncio.to_thread(eventually, lambda: waiting)
        await page.reload()
    await choose(page, origins.listed, gated, stack.token, subject, file)

    await expect(page.locator("output")).to_contain_text("Message")
    assert len(stack.messages(subject)) == 1


async def test_an_origin_that_is_not_listed_gets_nothing(
    page: Page, origins: Origins, stack: Live, subject: str, tmp_path: Path
) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"let me in")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))

    await choose(page, origins.foreign, stack.url, stack.token, subject, file)
    await expect(page.locator("output")).to_contain_text(f"is {origins.foreign} in the host's server.cors_origins?")

    # With a copy of the uploader, the API itself refuses.
    refused = await page.evaluate(
        """async ({url, token, subject}) => {
            const { uploadFile } = await import("/web/upload.js");
            const file = new File(["let me in"], "note.txt", { lastModified: 1 });
            return uploadFile(file, { url, token, subject }).then(() => null, ({ code, message }) => ({ code, message }));
        }""",
        {"url": stack.url, "token": stack.token, "subject": subject},
    )
    assert refused["code"] == "unavailable"
    assert refused["message"].endswith(f"it is down, or server.cors_origins does not list {origins.foreign}")
    assert any("blocked by CORS policy" in text for text in said)
    assert subject not in {known["subject"] for known in stack.api("GET", "/v1/subjects?limit=1000").json["subjects"]}


async def test_a_wrong_token_is_said_in_the_words_of_the_api(
    page: Page, origins: Origins, stack: Live, subject: str, tmp_path: Path
) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"hello")

    await choose(page, origins.listed, stack.url, "not-the-token", subject, file)

    await expect(page.locator("output")).to_have_text("the bearer token is wrong")
    assert stack.messages(subject) == []
