"""The host's own page: publish, look, download."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Gated
from tests.live import Live, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")  # one browser for all
PART = 5 * 1024 * 1024


@pytest.fixture
def said(page: Page) -> list[str]:
    """What the page's console says: violations of the Content-Security-Policy among it."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


async def open_subject(page: Page, stack: Live, subject: str, url: str = "") -> None:
    await page.goto(url or stack.url)
    await page.get_by_label("Subject").fill(subject)
    await page.get_by_label("Token").fill(stack.token)
    await page.get_by_role("button", name="Open").click()


async def test_files_are_published_listed_and_downloaded(
    page: Page, said: list[str], stack: Live, subject: str, tmp_path: Path
) -> None:
    small, large = tmp_path / "note.txt", tmp_path / "film.mp4"
    small.write_text("a note")
    large.write_bytes(os.urandom(PART + 1))
    await open_subject(page, stack, subject)
    await expect(page.locator("#list")).to_contain_text("No messages yet")

    await page.get_by_text("Message headers").click()
    await page.locator("#headers").fill("Kind: summer: 2026")
    await page.get_by_label("Choose files").set_input_files([small, large])

    await expect(page.get_by_text(f"Published to {subject} as message")).to_have_count(2)
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    messages = {message["headers"]["filename"]: message for message in stack.messages(subject)}
    assert messages["note.txt"]["headers"] == {"kind": "summer: 2026", "filename": "note.txt"}
    row = rows.filter(has_text="film.mp4")
    await expect(row).to_contain_text(str(messages["film.mp4"]["sequence"]))
    await expect(row).to_contain_text("video/mp4")
    await expect(row).to_contain_text("5.2 MB")
    async with page.expect_download() as download:
        await row.get_by_role("link", name="Download").click()
    saved = await download.value
    assert saved.suggested_filename == "film.mp4"
    await saved.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == large.read_bytes()
    assert said == []


async def test_an_unfinished_file_is_named_and_can_be_cancelled(
    page: Page, stack: Live, gated: Gated, subject: str, tmp_path: Path
) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(bytes(2 * PART))
    with gated.gate.holding(2) as waiting:
        await open_subject(page, stack, subject, gated.url)
        await page.get_by_label("Choose files").set_input_files(film)
        await asyncio.to_thread(eventually, lambda: waiting)
        await page.goto("about:blank")
        await open_subject(page, stack, subject, gated.url)
        await expect(page.locator("#unfinished")).to_contain_text("Not finished: film.mp4 (10.5 MB)")

        await page.get_by_label("Choose files").set_input_files(film)
        await expect(page.locator("#unfinished")).to_be_hidden()
        await asyncio.to_thread(eventually, lambda: len(waiting) == 2)
        await page.get_by_role("button", name="Cancel film.mp4").click()

        upload_id = waiting[0].upload_id
        assert waiting[1].upload_id == upload_id
        await asyncio.to_thread(eventually, lambda: stack.receipt(upload_id, wait=0)["state"] == "aborted")
    await expect(page.locator(".upload")).to_have_count(0)
    await expect(page.locator("#unfinished")).to_be_hidden()


async def test_messages_of_a_pack_are_shown_and_downloaded(
    page: Page, said: list[str], stack: Live, subject: str, tmp_path: Path
) -> None:
    await open_subject(page, stack, subject)
    await expect(page.locator("#list")).to_contain_text("No messages yet")
    lines = [{"data": "first <b>text</b>"}, {"data": "AAE=", "encoding": "base64"}, {"data": ""}]
    body = "\n".join(map(json.dumps, lines)).encode()

    # The page sees by itself what others publish.
    stack.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})

    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(3)
    await rows.nth(2).get_by_role("button", name="Show").click()
    await expect(page.locator("pre")).to_have_text("first <b>text</b>")
    for at, payload in ((1, b"\x00\x01"), (0, b"")):
        async with page.expect_download() as download:
            await rows.nth(at).get_by_role("button", name="Download").click()
        saved = await download.value
        assert saved.suggested_filename.startswith(f"{subject}-")
        await saved.save_as(tmp_path / "saved")
        assert (tmp_path / "saved").read_bytes() == payload
    assert said == []


async def test_the_newest_messages_are_found_behind_many_of_other_subjects(
    page: Page, stack: Live, subject: str
) -> None:
    old = [stack.publish(subject, b"old").json["sequence"] for _ in range(3)]
    many = b"\n".join([b'{"data": "x"}'] * 3000)
    kind = {"content-type": "application/x-ndjson"}
    stack.api("POST", f"/v1/subjects/{subject}-other/messages/batch", many, kind)
    stack.publish(subject, b"new")

    await open_subject(page, stack, subject)
    await expect(page.locator("tbody tr")).to_have_count(4)
    shown = await page.locator("tbody th").all_inner_texts()
    assert shown[1:] == [str(sequence) for sequence in reversed(old)]

    await open_subject(page, stack, f"{subject}-other")
    await expect(page.locator("tbody tr")).to_have_count(50)
    await expect(page.locator("#count")).to_have_text("the newest 50")
    latest = stack.api("GET", f"/v1/subjects/{subject}-other/latest").json["latest_sequence"]
    assert await page.locator("tbody th").first.inner_text() == str(latest)


async def test_a_wrong_token_is_said_and_can_be_put_right(
    page: Page, stack: Live, subject: str, tmp_path: Path
) -> None:
    file = tmp_path / "note.txt"
    file.write_text("a note")
    await page.goto(f"{stack.url}/#subject={subject}&token=wrong")
    await expect(page.get_by_role("alert")).to_have_text("Messages cannot be shown: the bearer token is wrong")
    await page.get_by_label("Choose files").set_input_files(file)
    await expect(page.locator(".upload")).to_contain_text("the bearer token is wrong")
    assert "token" not in page.url

    await page.get_by_label("Token").fill(stack.token)
    await page.get_by_label("Token").press("Enter")
    await expect(page.locator("#list")).to_contain_text("No messages yet")
    await page.reload()
    await expect(page.locator("#list")).to_contain_text("No messages yet")


async def test_the_page_fits_a_phone_and_the_keyboard(page: Page, stack: Live, subject: str) -> None:
    stack.publish(subject, b"x", x_mts_header_note="a long word " + "w" * 200)
    await page.set_viewport_size({"width": 360, "height": 700})
    await open_subject(page, stack, subject)
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") == 360

    await page.get_by_role("button", name="Open").focus()
    reached = []
    for _ in range(4):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert reached == ["files", "Message headers", "refresh", "Download"]


async def test_the_description_of_the_api_is_drawn(page: Page, said: list[str], stack: Live) -> None:
    await page.goto(f"{stack.url}/docs")

    await expect(page.get_by_role("heading", name="Announce one payload")).to_be_visible()
    assert said == []
