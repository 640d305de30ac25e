"""The files of the web page and the API's documentation, held in memory and served as they are."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path

from minitoolstream.api.app import Request, Response, Route

_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_STYLE = re.compile(rb"<style[^>]*>(.*?)</style>", re.DOTALL | re.IGNORECASE)
_ADDRESSES = {"index.html": "/", "docs.html": "/docs"}


def page_routes(folder: Path, store: str = "") -> Iterator[Route]:
    """A route for each file: only what was there at the start can be asked for, no path leads elsewhere.

    `store` is where presigned URLs lead: beside the host, the only server that the pages may talk to.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in name.split("/")):
            yield from _routes(_ADDRESSES.get(name, f"/web/{name}"), path, store)


def _routes(address: str, path: Path, store: str) -> Iterator[Route]:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "content-type": _content_type(path),
        "cache-control": "no-cache",
        "etag": etag,
        "referrer-policy": "no-referrer",
    }
    if path.suffix == ".html":
        headers["content-security-policy"] = _policy(body, store)

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(b"", 304, dict(headers))
        return Response(body, 200, dict(headers))

    for method in ("GET", "HEAD"):
        yield Route(method, address, page, f"The file {path.name}")


def _content_type(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _policy(html: bytes, store: str) -> str:
    """Scripts and styles only from us, requests only to us and the object store: a token cannot go elsewhere."""
    return "; ".join(
        (
            "default-src 'self'",
            " ".join(["script-src 'self'", *_hashes(_SCRIPT, html)]),
            " ".join(["style-src 'self'", *_hashes(_STYLE, html)]),
            "img-src 'self' data:",
            f"connect-src 'self' {store}".rstrip(),
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def _hashes(inline: re.Pattern[bytes], html: bytes) -> Iterator[str]:
    for text in inline.findall(html):
        yield f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
