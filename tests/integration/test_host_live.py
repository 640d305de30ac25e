"""The host before real servers: what it does while they are down, on its schedule, and when it stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import Answer, Live, eventually, send, start_live


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A stack whose servers may be stopped; every test starts them again."""
    stack = start_live(tmp_path_factory.mktemp("outage"))
    yield stack
    stack.stop()


def ready(live: Live) -> Answer:
    return send("GET", f"{live.url}/readyz")


def wait_until_ready(live: Live) -> None:
    eventually(lambda: ready(live).status == 200)


def event_for(live: Live, ticket: Any, size: int) -> Answer:
    """The event as the store sends it."""
    body = (
        '{"EventName": "s3:ObjectCreated:Put", "Records": [{"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": '
        f'{{"name": "{live.minio.bucket}"}}, "object": {{"key": "{ticket["object_name"]}", "size": {size}}}}}}}]}}'
    )
    token = live.environ["MTS_WEBHOOK_TOKEN"]
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return send("POST", f"{live.url}/hooks/object-created", body.encode(), headers)


def test_with_tarantool_down_the_api_says_when_to_come_back_and_recovers(outage: Live, subject: str) -> None:
    ticket = outage.ticket(subject, 5)
    outage.tarantool.stop()
    try:
        answer = outage.publish(subject, b"hello")
        assert (answer.status, answer.code) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        down = ready(outage)
        assert down.status == 503
        assert down.json["parts"]["tarantool"] != "ok"
        assert down.json["parts"]["object_store"] == "ok"
        assert send("GET", f"{outage.url}/healthz").status == 200
        # The store gives its 200 all the same: it says stored, not committed.
        assert outage.put(ticket, b"hello").status == 200
        # Refused at once, or put off while a connection is tried; in time either way.
        assert event_for(outage, ticket, 5).status in {200, 503}
    finally:
        outage.tarantool.start()
    wait_until_ready(outage)
    assert outage.api("POST", f"/v1/uploads/{ticket['upload_id']}/complete").json["state"] == "committed"
    assert outage.publish(subject, b"again").status == 201


def test_with_the_store_down_the_api_says_so_and_recovers(outage: Live, subject: str) -> None:
    outage.minio.stop()
    try:
        answer = outage.publish(subject, b"hello")
        assert (answer.status, answer.code) == (503, "unavailable")
        assert "retry-after" in answer.headers
        down = ready(outage)
        assert down.json["parts"]["tarantool"] == "ok"
        assert down.json["parts"]["object_store"] != "ok"
    finally:
        outage.minio.start()
    wait_until_ready(outage)
    assert outage.publish(subject, b"hello").status == 201


def test_an_event_is_answered_while_tarantool_hangs_and_committed_when_it_goes_on(outage: Live, subject: str) -> None:
    ticket = outage.ticket(subject, 5)
    os.kill(outage.tarantool.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        put = outage.put(ticket, b"hello")
        # Without the limit the store would hold the producer for a minute.
        assert time.monotonic() - began < 20
        assert put.status == 200
        assert event_for(outage, ticket, 5).json == {"deferred": True}
    finally:
        os.kill(outage.tarantool.pid, signal.SIGCONT)
    wait_until_ready(outage)
    assert outage.receipt(ticket["upload_id"])["state"] == "committed"


def test_hosts_commit_by_themselves_what_no_event_told_them(tmp_path: Path, subject: str) -> None:
    extra = {"MTS_RECONCILE_INTERVAL": "200ms", "MTS_UPLOADS_FIRST_LOOK": "100ms"}
    stack = start_live(tmp_path, webhook=False, hosts=2, extra_env=extra)
    try:
        ticket = stack.ticket(subject, 5)
        stack.put(ticket, b"hello")
        assert stack.receipt(ticket["upload_id"])["state"] == "committed"
        # The lease passes on when its holder is gone.
        stack.hosts[0].kill()
        stack.hosts.reverse()
        ticket = stack.ticket(subject, 5)
        stack.put(ticket, b"hello")
        assert stack.receipt(ticket["upload_id"])["state"] == "committed"
    finally:
        stack.stop()


def test_a_stopping_host_answers_a_waiting_receipt_as_it_is(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    host = live.add_host()
    live.hosts.remove(host)
    answers: list[Answer] = []

    def wait() -> None:
        url = f"{host.url}/v1/uploads/{ticket['upload_id']}?wait=25"
        answers.append(send("GET", url, headers={"authorization": f"Bearer {live.token}"}))

    waiting = threading.Thread(target=wait)
    waiting.start()
    # The one that waits, and the one that asks.
    eventually(lambda: "active_connections 2.0" in send("GET", f"{host.url}/metrics").body.decode())
    began = time.monotonic()
    host.stop()
    waiting.join(20)
    assert time.monotonic() - began < 20
    assert [(answer.status, answer.json["state"]) for answer in answers] == [(200, "open")]


def test_publishing_and_reading_are_counted(live: Live, subject: str) -> None:
    live.publish(subject, b"hello")
    live.messages(subject)

    def counted() -> bool:
        lines = send("GET", f"{live.url}/metrics").body.decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        names = {name.partition("{")[0] for name, value in values.items() if float(value) > 0}
        return {
            "minitoolstream_ingress_requests_total",
            "minitoolstream_ingress_request_duration_seconds_count",
            "minitoolstream_ingress_active_connections",
            "minitoolstream_ingress_tarantool_operations_total",
            "minitoolstream_ingress_minio_operations_total",
            "minitoolstream_egress_requests_total",
            "minitoolstream_egress_messages_delivered_total",
            "minitoolstream_commits_total",
        } <= names

    eventually(counted)


def test_a_malformed_event_is_taken_and_shown_to_the_operator(live: Live) -> None:
    headers = {"authorization": f"Bearer {live.environ['MTS_WEBHOOK_TOKEN']}"}
    for body in (b"{", b"[]", b'{"Records": [{"s3": 1}]}'):
        assert send("POST", f"{live.url}/hooks/object-created", body, headers).status == 200
    headers = {"authorization": "Bearer wrong"}
    assert send("POST", f"{live.url}/hooks/object-created", b"{}", headers).status == 401

    def counted() -> bool:
        text = send("GET", f"{live.url}/metrics").body.decode()
        return 'minitoolstream_rejected_events_total{reason="malformed_event"}' in text

    eventually(counted)


def test_pages_and_description_are_served(live: Live) -> None:
    for path, kind in (("/", "text/html"), ("/docs", "text/html"), ("/openapi.json", "application/json")):
        answer = send("GET", live.url + path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)


def test_no_secret_stands_in_the_log(live: Live, subject: str) -> None:
    ticket = live.ticket(subject, 5)
    live.put(ticket, b"hello")
    live.api("GET", f"/v1/subjects/{subject}/messages?start=first")
    answer = live.api("GET", "/v1/status", headers={"x-request-id": f"look-{subject}"})
    assert answer.headers["x-request-id"] == f"look-{subject}"
    log = live.hosts[0].log
    eventually(lambda: f"look-{subject}" in log.read_text())
    text = log.read_text()
    for secret in (live.token, live.environ["MTS_WEBHOOK_TOKEN"], live.minio.secret_key, "X-Amz-Signature=", "start="):
        assert secret not in text
