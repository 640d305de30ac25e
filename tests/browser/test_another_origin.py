"""Uploads from a page on another origin, as its users see them: examples/browser with a real file."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Gated, Origins
from tests.live import Live, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")  # one browser for all
PART = 5 * 1024 * 1024
REFUSED = "({ code, message }) => ({ code, message })"


@dataclass
class Example:
    """The example's page in the browser; it publishes into a subject of the test's own."""

    page: Page
    origin: str
    token: str
    subject: str

    async def upload(self, host: str, file: Path) -> None:
        """Open it, fill it in and press the button."""
        await self.page.goto(self.origin)
        await self.page.get_by_label("Host").fill(host)
        await self.page.get_by_label("Token").fill(self.token)
        await self.page.get_by_label("Subject").fill(self.subject)
        await self.page.get_by_label("File").set_input_files(file)
        await self.page.get_by_role("button", name="Upload").click()

    async def says(self, text: str) -> None:
        await expect(self.page.locator("output")).to_contain_text(text)


@pytest.fixture
def example(page: Page, origins: Origins, stack: Live, subject: str) -> Example:
    return Example(page, origins.listed, stack.token, subject)


@pytest.mark.parametrize("payload", [b"hello from afar", b""], ids=["some bytes", "empty"])
async def test_a_listed_origin_publishes_with_one_put(
    example: Example, stack: Live, tmp_path: Path, payload: bytes
) -> None:
    file = tmp_path / "grüße.txt"
    file.write_bytes(payload)

    await example.upload(stack.url, file)

    await example.says("Message ")
    (message,) = stack.messages(example.subject)
    await example.says(f"Message {message['sequence']} of {example.subject}")
    assert message["content_type"] == "text/plain"
    assert message["headers"] == {"filename": "grüße.txt"}
    assert len(message["sha256"]) == 64
    assert stack.payload(message) == payload


async def test_a_large_file_goes_on_after_a_reload(example: Example, stack: Live, gated: Gated, tmp_path: Path) -> None:
    payload = os.urandom(5 * PART + 12345)
    file = tmp_path / "video.mp4"
    file.write_bytes(payload)

    with gated.gate.holding(2, 4, 5, 6) as waiting:
        await example.upload(gated.url, file)
        # Parts 1 and 3 are in the store, the four that may go at a time hang.
        await asyncio.to_thread(eventually, lambda: len(waiting) == 4)
        name = waiting[0].object_name
        arrived = stack.api("GET", f"/v1/uploads/{waiting[0].upload_id}/parts").json["arrived"]
        assert [part["number"] for part in arrived] == [1, 3]
        await example.page.reload()
    await example.upload(gated.url, file)

    await example.says("Message ")
    assert sorted(gated.gate.stored_under(name)) == [1, 2, 3, 4, 5, 6]
    (message,) = stack.messages(example.subject)
    assert message["object_name"] == name
    assert stack.payload(message) == payload


async def test_a_reload_before_the_answer_does_not_publish_twice(
    example: Example, stack: Live, gated: Gated, tmp_path: Path
) -> None:
    file = tmp_path / "order.json"
    file.write_bytes(b'{"pay": 100}')

    with gated.gate.holding(answers=True) as waiting:
        await example.upload(gated.url, file)
        await asyncio.to_thread(eventually, lambda: waiting)
        await example.page.reload()
    await example.upload(gated.url, file)

    await example.says("Message ")
    assert len(stack.messages(example.subject)) == 1


async def test_an_origin_that_is_not_listed_gets_nothing(
    example: Example, origins: Origins, stack: Live, tmp_path: Path
) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"let me in")
    said: list[str] = []
    example.page.on("console", lambda message: said.append(message.text))
    example.origin = origins.foreign

    await example.upload(stack.url, file)
    await example.says(f"is {origins.foreign} in the host's server.cors_origins?")

    # With a copy of the uploader, the API itself refuses.
    refused = await example.page.evaluate(
        f"""async (options) => {{
            const {{ uploadFile }} = await import("/web/upload.js");
            return uploadFile(new File(["let me in"], "note.txt"), options).catch({REFUSED});
        }}""",
        {"url": stack.url, "token": stack.token, "subject": example.subject},
    )
    assert refused["code"] == "unavailable"
    assert refused["message"].endswith(f"it is down, or server.cors_origins does not list {origins.foreign}")
    assert any("blocked by CORS policy" in text for text in said)
    subjects = stack.api("GET", "/v1/subjects?limit=1000").json["subjects"]
    assert example.subject not in {known["subject"] for known in subjects}


async def test_a_wrong_token_is_said_in_the_words_of_the_api(example: Example, stack: Live, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"hello")
    example.token = "not-the-token"

    await example.upload(stack.url, file)

    await example.says("the bearer token is wrong")
    assert stack.messages(example.subject) == []
