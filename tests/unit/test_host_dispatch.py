"""Routing, tokens, bodies and failures of the host, by direct ASGI calls."""

from __future__ import annotations

import logging

import pytest

from minitoolstream.api.app import Request, Response, Route, answer
from minitoolstream.domain.errors import unavailable
from minitoolstream.host import exchange
from tests.unit.host_client import TOKEN, Answer, Client, call, echo, open_host


async def test_a_route_gets_its_parameters_decoded() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/subjects/a%2Fb%C3%A9/messages?start=first&limit=5")
    assert got.status == 200
    assert got.json["params"] == {"subject": "a/bé"}
    assert got.json["query"] == {"start": "first", "limit": "5"}
    assert got.json["principal"] == "api"


async def test_plus_and_escapes_in_a_query_are_decoded() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/subjects/a/messages?start=a+b%2Bc&&limit=")
    assert got.json["query"] == {"start": "a b+c", "limit": ""}


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/v1",
        "/v1/subjects",
        "/v1/subjects/orders/messages/",
        "/v1/uploads/",
        "/healthz/",
        "//healthz",
        "/v1/subjects/a/b/messages",
        "*",
    ],
)
async def test_a_path_that_is_no_route_is_not_found(path: str) -> None:
    host = await open_host()
    got = await call(host, "GET", path)
    assert (got.status, got.code) == (404, "not_found")


async def test_a_wrong_method_names_the_right_ones() -> None:
    host = await open_host()
    got = await call(host, "PATCH", "/v1/uploads/1")
    assert (got.status, got.code) == (405, "method_not_allowed")
    assert got.headers["allow"] == "DELETE, GET"


async def test_an_empty_name_reaches_the_route_which_refuses_it() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/subjects//messages")
    assert got.json["params"] == {"subject": ""}


@pytest.mark.parametrize("name", ["%ff", "%zz", "%", "a%c3"])
async def test_a_name_that_is_not_utf8_is_refused(name: str) -> None:
    host = await open_host()
    got = await call(host, "GET", f"/v1/subjects/{name}/messages")
    assert (got.status, got.code) == (400, "bad_request")
    assert got.json["error"]["details"] == {"field": "subject"}


@pytest.mark.parametrize("query", ["start=%ff", "start=%zz", "st%art=1", "start=\xff"])
async def test_a_query_that_is_not_utf8_is_refused(query: str) -> None:
    host = await open_host()
    got = await call(host, "GET", f"/v1/subjects/a/messages?{query}")
    assert (got.status, got.code) == (400, "bad_request")


async def test_a_repeated_query_parameter_is_refused() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/subjects/a/messages?limit=1&limit=2")
    assert got.status == 400
    assert "`limit` is given twice" in got.json["error"]["message"]


async def test_unknown_query_parameters_are_named() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/subjects/a/messages?limits=1&limit=2&from=3")
    assert got.status == 400
    assert got.json["error"]["details"]["unknown"] == ["from", "limits"]
    assert "known here: limit, start" in got.json["error"]["message"]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer tökén"]
)
async def test_no_token_or_a_wrong_one_is_unauthorized(header: str | None) -> None:
    host = await open_host()
    headers = {} if header is None else {"authorization": header}
    got = await call(host, "GET", "/v1/uploads/1", token=None, headers=headers)
    assert (got.status, got.code) == (401, "unauthorized")
    assert got.headers["www-authenticate"].startswith("Bearer")


async def test_the_token_may_not_come_twice() -> None:
    host = await open_host()
    value = f"Bearer {TOKEN}".encode()
    got = await call(host, "GET", "/v1/uploads/1", headers=[(b"authorization", value)] * 2)
    assert got.status == 401


async def test_the_scheme_of_the_token_is_case_insensitive() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/uploads/1", headers={"authorization": f"bearer {TOKEN}"})
    assert got.status == 200


async def test_repeated_headers_are_joined() -> None:
    host = await open_host()
    headers = [(b"x-word", b"1"), (b"x-word", b"2")]
    got = await call(host, "GET", "/v1/uploads/1", headers=headers)
    assert got.json["headers"]["x-word"] == "1, 2"


async def test_header_values_reach_routes_as_latin_1() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/uploads/1", headers={"x-word": b"\xff\xc3\xa9"})
    assert got.json["headers"]["x-word"].encode("latin-1") == b"\xff\xc3\xa9"


async def test_a_header_of_ours_is_refused_where_it_has_no_meaning() -> None:
    host = await open_host()
    for name in ("x-mts-seqno", "x-mts-header-a", "x-mts-"):
        got = await call(host, "GET", "/v1/uploads/1", headers={name: "1"})
        assert (got.status, got.code, got.json["error"]["details"]) == (400, "bad_request", {"field": name})
    assert (await call(host, "GET", "/v1/uploads/1", headers={"x-mts-region": "eu", "x-mt": "1"})).status == 200


async def test_a_token_may_hold_any_characters() -> None:
    host = await open_host(server__token="gehëim-∂-1234567890")
    assert (await call(host, "GET", "/v1/uploads/1", token="gehëim-∂-1234567890")).status == 200
    assert (await call(host, "GET", "/v1/uploads/1", token="gehëim-?-1234567890")).status == 401


async def test_a_request_id_is_taken_over_when_it_is_harmless() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/uploads/1", headers={"x-request-id": "a.B-9_"})
    assert got.headers["x-request-id"] == got.json["request_id"] == "a.B-9_"


@pytest.mark.parametrize("given", ["", "a b", "a" * 65, "é"])
async def test_a_request_id_is_made_when_the_given_one_is_not(given: str) -> None:
    host = await open_host()
    first = await call(host, "GET", "/v1/uploads/1", headers={"x-request-id": given})
    second = await call(host, "GET", "/v1/uploads/1")
    assert first.headers["x-request-id"] not in {given, second.headers["x-request-id"]}


async def test_a_body_in_pieces_is_put_together() -> None:
    host = await open_host()
    headers = {"transfer-encoding": "chunked"}
    got = await call(host, "POST", "/v1/subjects/a/messages", [b"he", b"l", b"lo"], headers=headers)
    assert got.json["body"] == "hello"


@pytest.mark.parametrize("body", [[b"he", Client.LEAVES], [Client.LEAVES]])
async def test_a_body_that_ends_early_reaches_no_route(body: list[bytes | Client]) -> None:
    reached = []

    async def store(request: Request) -> Response:
        reached.append(request.body)
        return answer({})

    host = await open_host(("publish", Route("POST", "/v1/store", store, "store")))
    got = await call(host, "POST", "/v1/store", body, headers={"content-length": "5"})
    assert (got.status, reached) == (0, [])


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/subjects/a/messages", 100),
        ("/v1/subjects/a/messages/batch", 200),
        ("/v1/subjects/a/uploads", 1024 * 1024),
    ],
)
async def test_each_route_has_its_limit(path: str, limit: int) -> None:
    host = await open_host(server__inline_limit=100, server__batch_limit=200)
    assert (await call(host, "POST", path, b"x" * limit)).status == 200
    got = await call(host, "POST", path, b"x" * (limit + 1))
    assert (got.status, got.code) == (413, "too_large")
    assert got.json["error"]["details"]["limit"] == limit
    names_ticket = "POST /v1/subjects/{subject}/uploads" in got.json["error"]["message"]
    assert names_ticket == ("messages" in path)


async def refused_large(body: list[bytes | Client], headers: dict[str, str]) -> Answer:
    host = await open_host(server__inline_limit=100)
    return await call(host, "POST", "/v1/subjects/a/messages", body, headers=headers)


async def test_a_body_declared_too_large_is_refused_before_it_is_read() -> None:
    got = await refused_large([Client.STAYS], {"content-length": "101"})
    assert (got.status, got.whole, got.closed) == (413, True, False)
    assert "connection" not in got.headers


@pytest.mark.parametrize(
    "headers",
    [{"content-length": str(10**12)}, {"transfer-encoding": "chunked"}, {"content-length": "101", "expect": "100"}],
)
async def test_the_answer_to_a_huge_body_is_sent_whole_before_the_connection_is_closed(
    headers: dict[str, str],
) -> None:
    got = await refused_large([b"x" * 99, b"y", b"z", Client.LEAVES], headers)
    assert (got.status, got.headers["connection"], got.whole) == (413, "close", True)


async def test_a_client_that_never_stops_sending_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LINGER_SECONDS", 0.01)
    got = await refused_large([b"x" * 200, Client.STAYS], {"content-length": str(10**12)})
    assert (got.status, got.whole, got.closed) == (413, True, True)


async def test_a_chunked_body_is_refused_as_soon_as_it_passes_the_limit() -> None:
    host = await open_host(server__inline_limit=100)
    body = [b"x" * 60, b"x" * 60, b"x" * 60]
    got = await call(host, "POST", "/v1/subjects/a/messages", body, headers={"transfer-encoding": "chunked"})
    assert got.status == 413


async def test_an_unexpected_error_tells_nothing_but_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("the password is swordfish")

    host = await open_host(("publish", Route("GET", "/v1/broken", broken, "broken")))
    with caplog.at_level(logging.ERROR):
        got = await call(host, "GET", "/v1/broken", headers={"x-request-id": "find-me"})
    assert (got.status, got.code) == (500, "internal")
    assert got.json["error"]["details"] == {"request_id": "find-me"}
    assert b"swordfish" not in got.body
    assert "swordfish" in caplog.text


async def test_a_part_that_is_down_gives_503_with_retry_after() -> None:
    async def down(request: Request) -> Response:
        raise unavailable("Tarantool does not answer")

    host = await open_host(("publish", Route("GET", "/v1/down", down, "down")))
    got = await call(host, "GET", "/v1/down")
    assert (got.status, got.headers["retry-after"]) == (503, "1")


async def test_answers_are_not_cached_and_not_sniffed() -> None:
    host = await open_host()
    got = await call(host, "GET", "/v1/uploads/1")
    assert got.headers["cache-control"] == "no-store"
    assert got.headers["x-content-type-options"] == "nosniff"


async def test_a_fixed_segment_wins_over_a_name() -> None:
    async def fixed(request: Request) -> Response:
        return answer("fixed")

    host = await open_host(("publish", Route("GET", "/v1/uploads/latest", fixed, "fixed")))
    assert (await call(host, "GET", "/v1/uploads/latest")).json == "fixed"
    assert (await call(host, "GET", "/v1/uploads/latest2")).json["params"] == {"upload_id": "latest2"}


async def test_two_routes_for_one_path_are_a_mistake_found_at_the_start() -> None:
    with pytest.raises(ValueError, match="routed twice"):
        await open_host(("fetch", Route("GET", "/v1/uploads/{other}", echo, "again")))


async def test_failures_and_slow_requests_are_logged_without_the_query(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitoolstream.host.app.SLOW_SECONDS", 0.0)
    host = await open_host(("fetch", Route("POST", "/v1/lease", echo, "a lease", waits=True)))
    with caplog.at_level(logging.WARNING):
        await call(host, "GET", "/v1/subjects/a/messages?start=secret", headers={"x-request-id": "slow-1"})
        await call(host, "POST", "/v1/lease", headers={"x-request-id": "leased"})
        await call(host, "GET", "/v1/uploads/1?wait=20", headers={"x-request-id": "waited"})
    (record,) = [record for record in caplog.records if record.name == "mts.host"]
    fields = record.__dict__["fields"]
    assert fields["request_id"] == "slow-1"
    assert fields["path"] == "/v1/subjects/a/messages"
    assert fields["status"] == 200


async def test_every_request_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    host = await open_host()
    with caplog.at_level(logging.DEBUG, logger="mts.host"):
        await call(host, "GET", "/v1/uploads/1", headers={"x-request-id": "seen"})
    assert [record.__dict__["fields"]["request_id"] for record in caplog.records] == ["seen"]


async def test_bodies_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.host.dispatch.BODIES_AT_ONCE", 150)
    host = await open_host()
    route = "/v1/subjects/a/messages"
    answers = [
        await call(host, "POST", route, [b"x" * 100, b"y" * rest], headers={"content-length": str(100 + rest)})
        for rest in (50, 51, 50)
    ]
    assert [answer.status for answer in answers] == [200, 429, 200]
    assert answers[1].headers["retry-after"] == "1"


async def test_a_body_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitoolstream.host.exchange.BODY_SILENCE", 0.01)
    host = await open_host()
    half: list[bytes | Client] = [b"x", Client.STAYS]
    got = await call(host, "POST", "/v1/subjects/a/messages", half, headers={"content-length": "2"})
    assert (got.status, got.code) == (408, "request_timeout")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_route_that_is_open_to_all_takes_no_body(path: str) -> None:
    got = await call(await open_host(), "GET", path, b"x")
    assert got.status == 413


async def test_a_fixed_segment_that_leads_nowhere_leaves_the_name_beside_it_open() -> None:
    routes = ("/x/{stage}/{transition}", "/x/fixed/done", "/x/{stage}/retry")
    host = await open_host(*(("publish", Route("POST", path, echo, path)) for path in routes))
    for path, params in (
        ("/x/fixed/done", {}),
        ("/x/fixed/start", {"stage": "fixed", "transition": "start"}),
        ("/x/fixed/retry", {"stage": "fixed"}),
        ("/x/other/done", {"stage": "other", "transition": "done"}),
    ):
        got = await call(host, "POST", path)
        assert (got.status, got.json["params"]) == (200, params), path
    for path in ("/x/fixed", "/x/fixed/a/b", "/x/fixed/"):
        assert (await call(host, "POST", path)).status == 404
