"""A stack, pages on two other origins, and a real Chromium."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from minitoolstream.stack.apt import unpacked
from minitoolstream.stack.program import Program, on_path
from tests.browser.store_gate import StoreGate
from tests.live import Live, start_live

ROOT = Path(__file__).parent.parent.parent
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)


class Files(SimpleHTTPRequestHandler):
    """The example's files, and at /web/ a copy of ours, as a site that brings its own would have it."""

    def translate_path(self, path: str) -> str:
        folder = ROOT if path.startswith("/web/") else ROOT / "examples" / "browser"
        self.directory = str(folder)
        return super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        pass


@dataclass(frozen=True)
class Origins:
    """Where other sites live: one that the host lists, one that it does not."""

    listed: str
    foreign: str


@pytest.fixture(scope="session")
def origins() -> Iterator[Origins]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files)) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Origins(*(f"http://127.0.0.1:{server.server_port}" for server in servers))
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, origins: Origins) -> Iterator[Live]:
    """The host lists one origin; the store's CORS is as `mts up` sets it."""
    environ = {"MTS_SERVER_CORS_ORIGINS": origins.listed, "MTS_SERVER_WORKERS": "1"}
    live = start_live(tmp_path_factory.mktemp("browser"), extra_env=environ)
    yield live
    live.stop()


@dataclass(frozen=True)
class Gated:
    """A host whose tickets lead through the gate."""

    url: str
    gate: StoreGate


@pytest.fixture(scope="session")
def gated(stack: Live) -> Iterator[Gated]:
    gate = StoreGate(stack.minio.endpoint)
    yield Gated(add_host(stack, MTS_MINIO_PUBLIC_ENDPOINT=gate.address), gate)
    gate.stop()


def add_host(stack: Live, **environ: str) -> str:
    """The address of one more host on the same servers, with other settings."""
    before = stack.environ
    stack.environ = {**before, **environ}
    try:
        host = stack.add_host()
    finally:
        stack.environ = before
    return host.url


def find_chromium() -> Program:
    if program := on_path("chromium"):
        return program
    if program := unpacked("chromium", "chromium"):
        # Its start script looks only under /usr/lib.
        binary = program.path.parents[1] / "lib" / "chromium" / "chromium"
        return Program(binary, program.origin, program.environ)
    pytest.fail("Chromium is missing: these tests need it; `make test` gets it (Debian's package `chromium`)")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    program = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program.path, args=FLAGS, env={**os.environ, **program.environ}
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A tab with storage of its own."""
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    await page.close()
