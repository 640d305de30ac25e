"""The same routes on AWS Lambda: Chalice calls them as API Gateway's events come."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from minitoolstream import bootstrap
from minitoolstream.api.app import run
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.host.functions import load_functions
from tests.core_kit import CoreKit, core_kit

load_functions()
TOKEN = "a-token-of-the-tests"


def function(name: str) -> Any:
    return sys.modules[f"minitoolstream_function_{name}"]


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreKit]:
    made = core_kit(server__token=TOKEN)
    monkeypatch.setattr(bootstrap, "_current", made.core)
    yield made
    run(made.core.close())


class Context:
    aws_request_id = "request-1"
    function_name = "f"
    memory_limit_in_mb = 128

    def get_remaining_time_in_millis(self) -> int:
        return 1000


def gateway(method: str, resource: str, params: dict[str, str], body: bytes = b"", **more: Any) -> dict[str, Any]:
    query = more.pop("query", None)
    return {
        "requestContext": {"httpMethod": method, "resourcePath": resource, "requestId": "request-1", "path": resource},
        "headers": {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {TOKEN}",
            **more.pop("headers", {}),
        },
        "multiValueQueryStringParameters": {name: [value] for name, value in query.items()} if query else None,
        "pathParameters": params,
        "stageVariables": None,
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def call(name: str, event: dict[str, Any]) -> tuple[int, Any]:
    answer = function(name).app(event, Context())
    return answer["statusCode"], json.loads(answer["body"])


SUBJECT = {"subject": "orders"}


def test_a_message_is_published_and_read(kit: CoreKit) -> None:
    status, receipt = call("publish", gateway("POST", "/v1/subjects/{subject}/messages", SUBJECT, b"\xff\x00"))
    assert (status, receipt["sequence"]) == (201, 1)
    query = {"start": "first", "inline": "true"}
    status, page = call("fetch", gateway("GET", "/v1/subjects/{subject}/messages", SUBJECT, query=query))
    assert status == 200
    assert base64.b64decode(page["messages"][0]["data"]) == b"\xff\x00"


def test_an_error_has_the_same_shape_as_everywhere(kit: CoreKit) -> None:
    event = gateway("POST", "/v1/subjects/{subject}/uploads", {"subject": "a b"}, b'{"size": 1}')
    status, body = call("publish", event)
    assert (status, body["error"]["code"], body["error"]["details"]) == (400, "bad_request", {"field": "subject"})


def test_an_event_of_the_bucket_commits(kit: CoreKit) -> None:
    upload = run(kit.ticket(2)).upload
    item = {"key": upload.object_name, "size": 2}
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "minitoolstream"}, "object": item}}
    handler = function("on_object_created").on_object_created
    assert handler({"Records": [record]}, Context()) == {"committed": 1}


def test_the_schedule_runs_the_reconciler(kit: CoreKit) -> None:
    upload = run(kit.ticket(2)).upload
    kit.put(upload, b"ok")
    kit.advance(60)
    event = {"version": "0", "account": "", "region": "", "detail": {}, "detail-type": "", "source": "", "time": ""}
    event |= {"id": "", "resources": []}
    swept = function("ttl_sweeper").sweep(event, Context())
    done = {name: {what: count for what, count in counts.items() if count} for name, counts in swept["done"].items()}
    assert (done["reconcile"]["committed"], done["journal"]["segments"], done["backup"]) == (1, 1, {"made": 1})
    assert not swept["cut_off"]


def test_a_container_opens_its_core_once(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "MTS_HOME": "/nonexistent",
        "MTS_TARANTOOL_PASSWORD": "x",
        "MTS_MINIO_ACCESS_KEY": "x",
        "MTS_MINIO_SECRET_KEY": "x",
    }
    monkeypatch.setattr(bootstrap, "_current", None)
    monkeypatch.setattr(bootstrap, "load_settings", lambda: load_settings(environ))
    first = run(bootstrap.current_core())
    assert run(bootstrap.current_core()) is first
    run(first.close())


def test_a_core_without_credentials_says_which_to_set() -> None:
    with pytest.raises(MtsError, match="MTS_TARANTOOL_PASSWORD"):
        run(bootstrap.open_core(load_settings({"MTS_HOME": "/nonexistent"})))


def test_a_call_needs_the_token(kit: CoreKit) -> None:
    event = gateway("GET", "/v1/subjects/{subject}/latest", SUBJECT, headers={"Authorization": "Bearer wrong"})
    status, body = call("fetch", event)
    assert (status, body["error"]["code"]) == (401, "unauthorized")


def test_an_unknown_query_parameter_is_named(kit: CoreKit) -> None:
    status, body = call("fetch", gateway("GET", "/v1/subjects/{subject}/latest", SUBJECT, query={"limmit": "1"}))
    assert status == 400
    assert "limmit" in body["error"]["message"]


def test_a_long_poll_waits_and_a_stream_is_refused_with_the_way_out(kit: CoreKit) -> None:
    call("publish", gateway("POST", "/v1/subjects/{subject}/messages", SUBJECT, b"x"))
    path = "/v1/subjects/{subject}/subscribe"
    status, page = call("fetch", gateway("GET", path, SUBJECT, query={"start": "first", "wait": "5"}))
    assert (status, page["messages"][0]["sequence"]) == (200, 1)
    status, refused = call("fetch", gateway("GET", path, SUBJECT, headers={"Accept": "text/event-stream"}))
    assert (status, refused["error"]["code"]) == (400, "bad_request")
    assert "wait=" in refused["error"]["message"]


def test_the_pipeline_is_a_function_of_its_own(kit: CoreKit) -> None:
    base = "/api/v1/pipeline"
    body = b'{"filename": "20250101000000", "shards": [0]}'
    status, made = call("pipeline", gateway("POST", f"{base}/files/register", {}, body))
    assert (status, made["created"]) == (200, True)
    path, params = f"{base}/stages/{{stage}}/{{transition}}", {"stage": "shard-worker", "transition": "start"}
    status, refused = call("pipeline", gateway("POST", path, params, b'{"filename": "20250101000000", "shard": 0}'))
    assert (status, refused["error"]["details"]["waits_for"]) == (409, "shard-splitter")
