"""Events by webhook and by SQS: answered in time, recorded when bad, never a loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minitoolstream.domain.errors import MtsError, bad_request, unavailable
from minitoolstream.host import sqs, webhook
from minitoolstream.host.app import Host
from minitoolstream.host.sqs import Poller, open_queue
from tests.unit.host_client import TOKEN, WEBHOOK_TOKEN, Answer, call, no_events, open_host, settings

EVENT = b'{"Records": []}'


async def post(host: Host, body: bytes = EVENT, token: str | None = WEBHOOK_TOKEN) -> Answer:
    return await call(host, "POST", "/hooks/object-created", body, token=token)


async def rejected(host: Host) -> str:
    return (await call(host, "GET", "/metrics", token=None)).body.decode()


async def test_an_event_is_handed_over_with_core_and_request_id() -> None:
    seen: list[Any] = []

    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        seen.append((core, event, request_id))
        return {"committed": 1}

    host = await open_host(handle_event=handle)
    got = await post(host)
    assert (got.status, got.json) == (200, {"committed": 1})
    assert seen == [(host.core, {"Records": []}, got.headers["x-request-id"])]


@pytest.mark.parametrize("token", [None, "wrong", TOKEN])
async def test_only_the_stores_own_token_opens_the_webhook(token: str | None) -> None:
    host = await open_host()
    assert (await post(host, token=token)).status == 401


async def test_the_stores_token_does_not_open_the_api() -> None:
    host = await open_host()
    assert (await call(host, "GET", "/v1/uploads/1", token=WEBHOOK_TOKEN)).status == 401


async def test_without_a_webhook_token_there_is_no_webhook() -> None:
    host = await open_host(server__webhook_token=None)
    assert (await post(host)).status == 404


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'"\xff"'])
async def test_what_is_no_json_is_the_functions_to_record(body: bytes) -> None:
    seen: list[Any] = []

    async def handle(core: Any, event: Any, request_id: str) -> dict[str, Any]:
        seen.append(event)
        return {"committed": 0}

    host = await open_host(handle_event=handle)
    got = await post(host, body)
    assert (got.status, seen) == (200, [None])


@pytest.mark.parametrize(("error", "reason"), [(RuntimeError("boom"), "internal"), (bad_request("no"), "bad_request")])
async def test_an_event_that_can_never_work_is_not_sent_again(error: Exception, reason: str) -> None:
    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        raise error

    host = await open_host(handle_event=handle)
    got = await post(host)
    assert (got.status, got.json) == (200, {"rejected": reason})
    assert f'reason="{reason}"' in await rejected(host)


async def test_an_event_that_may_work_later_says_so() -> None:
    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        raise unavailable("Tarantool is down")

    host = await open_host(handle_event=handle)
    got = await post(host)
    assert (got.status, got.headers["retry-after"]) == (503, "1")


async def test_a_slow_commit_is_answered_in_time_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, done = asyncio.Event(), asyncio.Event()

    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        await go_on.wait()
        done.set()
        return {"committed": 1}

    monkeypatch.setattr(webhook.Webhook.__init__, "__defaults__", (0.01,))
    host = await open_host(handle_event=handle)
    got = await asyncio.wait_for(post(host), 5)
    assert (got.status, got.json) == (200, {"deferred": True})
    assert not done.is_set()
    go_on.set()
    await asyncio.wait_for(done.wait(), 5)


async def test_a_stopping_host_finishes_deferred_commits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, ended = asyncio.Event(), []

    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        await go_on.wait()
        ended.append(request_id)
        raise unavailable("too late")

    monkeypatch.setattr(webhook.Webhook.__init__, "__defaults__", (0.01,))
    host = await open_host(handle_event=handle)
    await post(host)
    asyncio.get_running_loop().call_later(0.02, go_on.set)
    await host.stop()
    assert len(ended) == 1
    assert host.core.closed
    assert "waits for the reconciler" in caplog.text


def test_the_webhook_answers_before_the_store_gives_up() -> None:
    assert webhook.ANSWER_WITHIN < 2


class FakeQueue:
    def __init__(self, *bodies: str) -> None:
        self.messages = {str(at): body for at, body in enumerate(bodies)}

    def receive_message(self, **_about: Any) -> dict[str, Any]:
        found = [{"MessageId": key, "ReceiptHandle": key, "Body": body} for key, body in self.messages.items()]
        return {"Messages": found} if found else {}

    def delete_message_batch(self, **about: Any) -> dict[str, Any]:
        for entry in about["Entries"]:
            del self.messages[entry["ReceiptHandle"]]
        return {}


async def test_handled_messages_leave_the_queue_and_failed_ones_stay() -> None:
    outcomes: dict[int, Exception] = {
        2: unavailable("down"),
        3: RuntimeError("boom"),
        4: MtsError("bad_request", "never"),
        5: MtsError("not_configured", "wrong password"),
    }

    async def handle(core: Any, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        if event and event["n"] in outcomes:
            raise outcomes[event["n"]]
        return {}

    host = await open_host()
    queue = FakeQueue('{"n": 1}', '{"n": 2}', '{"n": 3}', '{"n": 4}', '{"n": 5}', "not json")
    deleted = await Poller(queue, "http://queue", host.core, handle).poll()
    assert deleted == 3
    assert list(queue.messages.values()) == ['{"n": 2}', '{"n": 3}', '{"n": 5}']
    assert 'reason="bad_request"' in await rejected(host)


async def test_an_empty_queue_is_no_error() -> None:
    host = await open_host()
    assert await Poller(FakeQueue(), "http://queue", host.core, no_events).poll() == 0


async def test_polling_goes_on_after_a_failure_and_ends_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await open_host()
    tries = []

    class Broken(FakeQueue):
        def receive_message(self, **about: Any) -> dict[str, Any]:
            tries.append(about)
            if len(tries) == 3:
                host.drain()
            raise ConnectionError("refused")

    monkeypatch.setattr(sqs, "MAX_PAUSE", 0.001)
    await asyncio.wait_for(Poller(Broken(), "http://queue", host.core, no_events).run(), 10)
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("store", "queue"),
    [
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("https://s3.eu-west-1.amazonaws.com", "https://sqs.eu-west-1.amazonaws.com"),
        ("s3.eu-west-1.amazonaws.com:443", "https://sqs.eu-west-1.amazonaws.com"),
    ],
)
def test_the_queue_is_asked_where_the_object_store_is(store: str, queue: str) -> None:
    given = settings(minio__endpoint=store, minio__access_key="a", minio__secret_key="b", minio__region="eu-west-1")
    client = open_queue(given)
    assert client.meta.endpoint_url == queue
    assert client.meta.region_name == "eu-west-1"
