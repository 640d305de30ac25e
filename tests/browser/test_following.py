"""The page about readers shows how a browser follows a subject; here one does, from another origin."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page

from tests.browser.conftest import ROOT, Origins, add_host
from tests.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")  # one browser for all
(FOLLOW,) = re.findall(r"^```js\n(.*?)^```", (ROOT / "docs/consumers.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
START = "(given) => { window.seen = []; follow(...given, (message) => window.seen.push(message.sequence)); }"


async def test_a_browser_follows_a_subject_and_goes_on_behind_what_it_saw(
    page: Page, origins: Origins, stack: Live, subject: str
) -> None:
    url = add_host(stack)
    host = stack.hosts[-1]
    sequences = [stack.publish(subject, b"1").json["sequence"], stack.publish(subject, b"2").json["sequence"]]
    await page.goto(origins.listed)
    await page.add_script_tag(content=FOLLOW)

    await page.evaluate(START, [url, stack.token, subject])
    await page.wait_for_function("window.seen.length === 2")
    host.stop()
    sequences.append(stack.publish(subject, b"3").json["sequence"])
    host.start()
    await page.wait_for_function("window.seen.length >= 3")
    sequences.append(stack.publish(subject, b"4").json["sequence"])
    await page.wait_for_function("window.seen.length >= 4")

    assert await page.evaluate("window.seen") == sequences, "each once"
