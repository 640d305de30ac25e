"""The same routes on AWS Lambda: Chalice calls them as API Gateway's events come."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from minitoolstream import container
from minitoolstream.api.app import run
from minitoolstream.config import load_settings
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.domain.upload import Upload
from minitoolstream.host.functions import load_functions
from tests.core_kit import CoreKit, core_kit

load_functions()
TOKEN = "a-token-of-the-tests"


def function(name: str) -> Any:
    return sys.modules[f"minitoolstream_function_{name}"]


def authorizer() -> Any:
    """API Gateway's alone: the host asks for the token itself."""
    path = Path(__file__).resolve().parents[2] / "functions" / "authorizer" / "app.py"
    spec = spec_from_file_location("minitoolstream_function_authorizer", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreKit]:
    made = core_kit(server__token=TOKEN)
    monkeypatch.setattr(container, "_container", container.Container(made.core))
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


def test_a_header_of_ours_that_the_route_does_not_take_is_refused(kit: CoreKit) -> None:
    event = gateway("POST", "/v1/subjects/{subject}/uploads", SUBJECT, b'{"size": 1}', headers={"X-Mts-Seqno": "1"})
    status, body = call("publish", event)
    assert (status, body["error"]["details"]) == (400, {"field": "x-mts-seqno"})


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


def many(kit: CoreKit, count: int, payload: bytes, header: str) -> dict[str, Any]:
    """So many of them published, and Lambda's whole answer to who asks for all."""
    for _ in range(count):
        event = gateway("POST", "/v1/subjects/{subject}/messages", SUBJECT, payload, headers={"X-Mts-Header-A": header})
        assert function("publish").app(event, Context())["statusCode"] == 201
    query = {"start": "first", "inline": "true", "limit": "1000"}
    event = gateway("GET", "/v1/subjects/{subject}/messages", SUBJECT, query=query)
    answer: dict[str, Any] = function("fetch").app(event, Context())
    return answer


def test_payloads_come_along_as_far_as_an_answer_of_lambda_can_hold_them(kit: CoreKit) -> None:
    """Above 6 MB it would be refused, and whoever reads on asks for the same page again."""
    answer = many(kit, 100, bytes(40_000), '"' * 12_000)
    assert len(json.dumps(answer)) < 6 * 2**20
    messages = json.loads(answer["body"])["messages"]
    assert len(messages) == 100
    assert 0 < len([one for one in messages if "data" in one]) < 100
    assert all("url" in one for one in messages)


def test_an_answer_that_lambda_would_not_send_says_to_ask_for_fewer(kit: CoreKit) -> None:
    answer = many(kit, 100, b"x", '"' * 16_000)
    assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (413, "too_large")


def test_the_pipeline_is_a_function_of_its_own(kit: CoreKit) -> None:
    base = "/api/v1/pipeline"
    body = b'{"filename": "20250101000000", "shards": [0]}'
    status, made = call("pipeline", gateway("POST", f"{base}/files/register", {}, body))
    assert (status, made["created"]) == (200, True)
    path, params = f"{base}/stages/{{stage}}/{{transition}}", {"stage": "shard-worker", "transition": "start"}
    status, refused = call("pipeline", gateway("POST", path, params, b'{"filename": "20250101000000", "shard": 0}'))
    assert (status, refused["error"]["details"]["waits_for"]) == (409, "shard-splitter")


@dataclass
class Letters:
    """Fulfils `ports.EventLetters`."""

    got: list[tuple[str, str]] = field(default_factory=list)
    away: bool = False

    async def put(self, body: str, reason: str) -> None:
        if self.away:
            raise unavailable("the queue is away")
        self.got.append((body, reason))

    async def close(self) -> None: ...


def from_queue(*bodies: str) -> dict[str, Any]:
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": f"id-{number}", "body": body} for number, body in enumerate(bodies)
        ]
    }


def creation(upload: Upload) -> str:
    item = {"key": upload.object_name, "size": upload.size}
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "minitoolstream"}, "object": item}}
    return json.dumps({"Records": [record]})


def failed_of(answer: Any) -> list[str]:
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def test_a_poisoned_message_ends_in_the_dead_letters_and_its_neighbours_are_committed(kit: CoreKit) -> None:
    letters = kit.core.event_letters = Letters()
    upload = run(kit.ticket(2)).upload
    handler = function("on_object_created").on_object_created
    assert failed_of(handler(from_queue("{", creation(upload)), Context())) == []
    assert letters.got == [("{", "malformed_event")]
    assert run(kit.receipt(upload)).sequence == 1


def test_without_a_queue_for_it_a_poisoned_message_is_recorded(kit: CoreKit) -> None:
    assert failed_of(function("on_object_created").on_object_created(from_queue("{"), Context())) == []
    assert kit.metrics.reasons == ["malformed_event"]


def test_a_poisoned_message_comes_again_while_the_dead_letters_are_away(kit: CoreKit) -> None:
    kit.core.event_letters = Letters(away=True)
    assert failed_of(function("on_object_created").on_object_created(from_queue("{"), Context())) == ["id-0"]


@pytest.mark.parametrize(
    ("code", "failed", "letters"),
    [("unavailable", ["id-0"], []), ("internal", [], ["internal"])],
)
def test_what_may_work_later_comes_again_and_what_never_will_is_a_dead_letter(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch, code: str, failed: list[str], letters: list[str]
) -> None:
    async def refuse(*_: Any) -> None:
        raise MtsError(code, "no")

    upload, queue = run(kit.ticket(2)).upload, Letters()
    kit.core.event_letters = queue
    monkeypatch.setattr(kit.core.metadata, "commit_uploads", refuse)
    assert failed_of(function("on_object_created").on_object_created(from_queue(creation(upload)), Context())) == failed
    assert [reason for _, reason in queue.got] == letters


def test_a_message_that_fails_as_nobody_foresaw_comes_again_alone(
    kit: CoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its neighbours would fail with it until they are dead letters."""

    async def fail(*_: Any) -> None:
        raise ZeroDivisionError

    upload, foreign = run(kit.ticket(2)).upload, replace(run(kit.ticket(2)).upload, object_name="elsewhere")
    monkeypatch.setattr(kit.core.metadata, "reject_event", fail)
    handler = function("on_object_created").on_object_created
    assert failed_of(handler(from_queue(creation(foreign), creation(upload)), Context())) == ["id-0"]
    assert run(kit.receipt(upload)).sequence == 1


def test_an_event_is_not_given_up_because_our_settings_are_wrong(kit: CoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise MtsError("not_configured", "wrong password")

    upload, queue = run(kit.ticket(2)).upload, Letters()
    kit.core.event_letters = queue
    monkeypatch.setattr(kit.core.metadata, "commit_uploads", refuse)
    with pytest.raises(MtsError, match="wrong password"):
        function("on_object_created").on_object_created(from_queue(creation(upload)), Context())
    assert queue.got == []


ARN = "arn:aws:execute-api:eu-central-1:123456789012:abcdef/dev/GET/v1/subjects/orders/latest"


def test_the_authorizer_lets_the_token_into_the_whole_stage(kit: CoreKit) -> None:
    event = {"type": "TOKEN", "authorizationToken": f"Bearer {TOKEN}", "methodArn": ARN}
    policy = authorizer().authorize(event, Context())
    assert policy["principalId"] == "api"
    assert policy["policyDocument"]["Statement"] == [
        {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": ARN.partition("/GET")[0] + "/*"}
    ]


@pytest.mark.parametrize("token", [None, "", TOKEN, "Bearer", "Bearer wrong", f"Basic {TOKEN}"])
def test_the_authorizer_refuses_everybody_else_with_the_word_that_makes_it_a_401(
    kit: CoreKit, token: str | None
) -> None:
    event = {"type": "TOKEN", "methodArn": ARN} | ({} if token is None else {"authorizationToken": token})
    with pytest.raises(Exception, match=r"\AUnauthorized\Z"):
        authorizer().authorize(event, Context())


ORIGIN = "https://app.example"


@pytest.fixture
def browser_kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreKit]:
    made = core_kit(server__token=TOKEN, server__cors_origins=[ORIGIN])
    monkeypatch.setattr(container, "_container", container.Container(made.core))
    yield made
    run(made.core.close())


@pytest.mark.usefixtures("browser_kit")
@pytest.mark.parametrize(("origin", "allowed"), [(ORIGIN, ORIGIN), ("https://evil.example", None)])
@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_a_page_of_a_listed_origin_may_read_answers_and_errors(origin: str, allowed: str | None, token: str) -> None:
    headers = {"origin": origin, "Authorization": f"Bearer {token}"}
    answer = function("publish").app(gateway("GET", "/v1/subjects", {}, headers=headers), Context())
    assert answer["statusCode"] == (200 if token == TOKEN else 401)
    assert answer["headers"].get("access-control-allow-origin") == allowed
    assert answer["headers"]["cache-control"] == "no-store"
    assert answer["headers"]["x-request-id"] == "request-1"


def test_a_browser_asks_without_a_token_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets Manager is not even called: whoever asks must not make us ask."""
    environ = {"MTS_HOME": "/nowhere", "MTS_SERVER_CORS_ORIGINS": ORIGIN, "MTS_AWS_SECRET": "s"}
    monkeypatch.setattr(container, "_container", container.Container(load=lambda: load_settings(environ)))
    monkeypatch.setattr("minitoolstream.bootstrap.open_secrets", None)
    event = gateway("OPTIONS", "/v1/subjects", {}, headers={"Origin": ORIGIN})
    answer = authorizer().preflight(event, Context())
    assert (answer["statusCode"], answer["headers"]["access-control-allow-origin"]) == (204, ORIGIN)
    refused = authorizer().preflight(gateway("OPTIONS", "/v1/subjects", {}), Context())
    assert (refused["statusCode"], json.loads(refused["body"])["error"]["code"]) == (403, "forbidden")
