"""What browsers meet: CORS, pages, and the open paths of the host."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path

import pytest

from minitoolstream.domain.errors import unavailable
from minitoolstream.host import health
from minitoolstream.host.app import Host
from minitoolstream.host.dispatch import own_endpoint
from minitoolstream.host.pages import page_routes
from minitoolstream.host.router import Router
from tests.unit.host_client import FakeCore, call, open_host

ORIGIN = "https://app.example"


def preflight(origin: str = ORIGIN, headers: str = "authorization, content-type") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": headers,
    }


async def test_a_listed_origin_may_call_and_read_errors() -> None:
    host = await open_host(server__cors_origins=[ORIGIN])
    for token, status in (("wrong", 401), (None, 401)):
        got = await call(host, "GET", "/v1/uploads/1", token=token, headers={"origin": ORIGIN})
        assert got.status == status
        assert got.headers["access-control-allow-origin"] == ORIGIN
        assert got.headers["access-control-expose-headers"] == "x-request-id, retry-after"
        assert got.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in got.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "https://app.example.evil", "http://app.example", "null"])
async def test_other_origins_get_no_permission(origin: str) -> None:
    host = await open_host(server__cors_origins=[ORIGIN])
    got = await call(host, "GET", "/v1/uploads/1", headers={"origin": origin})
    assert "access-control-allow-origin" not in got.headers
    assert got.headers["vary"] == "origin"
    got = await call(host, "OPTIONS", "/v1/uploads/1", token=None, headers=preflight(origin))
    assert (got.status, got.code) == (403, "forbidden")
    assert "access-control-allow-origin" not in got.headers


async def test_no_origin_is_allowed_unless_configured() -> None:
    host = await open_host()
    got = await call(host, "OPTIONS", "/v1/uploads/1", token=None, headers=preflight())
    assert got.status == 403


async def test_a_preflight_needs_no_token_and_allows_our_headers() -> None:
    host = await open_host(server__cors_origins=[ORIGIN])
    wanted = "Authorization,content-type, idempotency-key, x-mts-header-Färbe, x-mts-header-color, x-evil"
    got = await call(host, "OPTIONS", "/v1/subjects/a/messages", token=None, headers=preflight(headers=wanted))
    assert (got.status, got.body) == (204, b"")
    assert got.headers["access-control-allow-origin"] == ORIGIN
    allowed = got.headers["access-control-allow-headers"].split(", ")
    assert allowed == ["authorization", "content-type", "idempotency-key", "x-mts-header-color"]
    assert "DELETE" in got.headers["access-control-allow-methods"]


async def test_every_origin_is_allowed_only_when_that_is_written_down() -> None:
    host = await open_host(server__cors_origins=["*"])
    got = await call(host, "GET", "/v1/uploads/1", headers={"origin": "https://any.example"})
    assert got.headers["access-control-allow-origin"] == "*"
    assert "vary" not in got.headers


async def test_options_without_an_origin_is_a_wrong_method() -> None:
    host = await open_host(server__cors_origins=[ORIGIN])
    assert (await call(host, "OPTIONS", "/v1/uploads/1")).status == 405


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_open_paths_need_no_token(method: str, path: str) -> None:
    host = await open_host()
    assert (await call(host, method, path, token=None)).status == 200


def core_of(host: Host) -> FakeCore:
    assert isinstance(host.core, FakeCore)
    return host.core


async def test_ready_names_the_part_that_is_down() -> None:
    host = await open_host()
    core_of(host).metadata.problem = unavailable("Tarantool refuses connections")
    got = await call(host, "GET", "/readyz", token=None)
    assert got.status == 503
    assert got.json["parts"] == {"tarantool": "Tarantool refuses connections", "object_store": "ok"}
    assert got.headers["retry-after"] == "1"


async def test_ready_hides_foreign_errors() -> None:
    host = await open_host()
    core_of(host).payloads.problem = RuntimeError("user root at 10.0.0.1")
    got = await call(host, "GET", "/readyz", token=None)
    assert got.json["parts"]["object_store"] == "failed with RuntimeError"


async def test_ready_does_not_wait_for_a_part_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.01)
    host = await open_host()
    core_of(host).metadata.hangs = True
    got = await asyncio.wait_for(call(host, "GET", "/readyz", token=None), 5)
    assert (got.status, got.json["parts"]["object_store"]) == (503, "ok")
    assert "no answer" in got.json["parts"]["tarantool"]


async def test_a_stopping_host_is_alive_but_not_ready() -> None:
    host = await open_host()
    host.drain()
    assert (await call(host, "GET", "/healthz", token=None)).status == 200
    assert (await call(host, "GET", "/readyz", token=None)).json["status"] == "stopping"


@pytest.fixture
def pages(tmp_path: Path) -> Router:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<script>let a = 1</script><script src='/web/app.js'></script>")
    (tmp_path / "app.js").write_text("let b")
    (tmp_path / "assets" / "logo.svg").write_text("<svg/>")
    (tmp_path / ".keep").write_text("")
    router = Router()
    for route in page_routes(tmp_path):
        router.add(own_endpoint(route))
    return router


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/web/app.js", "text/javascript; charset=utf-8"),
        ("/web/assets/logo.svg", "image/svg+xml"),
    ],
)
async def test_pages_are_served_with_their_type(pages: Router, path: str, kind: str) -> None:
    from minitoolstream.api.app import Request

    endpoint, _ = pages.find("GET", path)
    got = await endpoint.route.handler(Request("GET", path, {}, {}, {}, b"", "1"))
    assert got.headers["content-type"] == kind
    again = await endpoint.route.handler(Request("GET", path, {}, {}, {"if-none-match": got.headers["etag"]}, b"", "2"))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/web/.keep", "/web/../secret", "/web/%2e%2e/secret", "/web/", "/web/index.html"])
async def test_nothing_else_of_the_disk_can_be_asked_for(pages: Router, path: str) -> None:
    from minitoolstream.domain.errors import MtsError

    with pytest.raises(MtsError, match="no such path"):
        pages.find("GET", path)


async def test_only_the_scripts_of_a_page_may_run_in_it(pages: Router) -> None:
    from minitoolstream.api.app import Request

    endpoint, _ = pages.find("GET", "/")
    got = await endpoint.route.handler(Request("GET", "/", {}, {}, {}, b"", "1"))
    policy = got.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(b"let a = 1").digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "frame-ancestors 'none'" in policy


async def test_a_page_talks_only_to_its_host_and_to_the_store() -> None:
    host = await open_host(minio__endpoint="http://127.0.0.1:9000", minio__public_endpoint="https://store.example")
    for path in ("/", "/docs"):
        policy = (await call(host, "GET", path, token=None)).headers["content-security-policy"]
        assert "connect-src 'self' https://store.example;" in policy
        assert "unsafe" not in policy
