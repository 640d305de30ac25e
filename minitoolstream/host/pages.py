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
_ADDRESSES = {"index.html": "/", "docs.html": "/docs"}


def page_routes(folder: Path) -> Iterator[Route]:
    """A route for each file: only what was there at the start can be asked for, no path leads elsewhere."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in name.split("/")):
            yield from _routes(_ADDRESSES.get(name, f"/web/{name}"), path)


def _routes(address: str, path: Path) -> Iterator[Route]:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "content-type": _content_type(path),
        "cache-control": "no-cache",
        "etag": etag,
        "referrer-policy": "no-referrer",
    }
    if path.suffix == ".html":
        headers["content-security-policy"] = _policy(body)

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(b"", 304, dict(headers))
        return Response(body, 200, dict(headers))

    for method in ("GET", "HEAD"):
        yield Route(method, address, page, f"The file {path.name}")


def _content_type(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _policy(html: bytes) -> str:
    """Scripts only from us; requests to anywhere, since the page talks to an object store of any address."""
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in _SCRIPT.findall(html)
    ]
    return "; ".join(
        (
            "default-src 'self'",
            "script-src " + " ".join(["'self'", *hashes]),
            "style-src 'self' 'unsafe-inline'",
            "img-src * data: blob:",
            "media-src * data: blob:",
            "connect-src *",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )
