"""The SDK's retries, addresses and errors, on a host that fails on demand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.client import AsyncClient, MtsError
from minitoolstream.config import load_settings
from minitoolstream.domain.cid import cid_of
from minitoolstream.stack.private_files import private_folder, write_private
from tests.unit.fake_host import (
    HOSTS,
    FakeHost,
    answer,
    api_error,
    break_after,
    break_before,
    refuse_connection,
)


async def test_a_publish_whose_answer_was_lost_is_stored_once() -> None:
    host = FakeHost()
    host.once("POST host-a/v1/subjects/orders/messages", break_after)
    receipt = await host.client().publish("orders", b"hello")
    assert (receipt.sequence, receipt.duplicate, len(host.messages)) == (1, True, 1)
    keys = [headers["idempotency-key"] for headers in host.sent_headers]
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_two_publishes_have_different_keys() -> None:
    host = FakeHost()
    client = host.client()
    await client.publish("orders", b"same")
    await client.publish("orders", b"same")
    assert len(host.messages) == 2


async def test_a_503_is_repeated_after_the_time_the_host_asked_for_and_some_jitter() -> None:
    host = FakeHost()
    host.once("/latest", api_error(503, "unavailable", retry_after="2"), api_error(503, "unavailable"))
    assert await host.client().latest("orders") == 0
    assert host.pauses == [2.1, 0.2]


async def test_pauses_grow_up_to_a_bound_and_end_when_the_time_for_retries_is_over() -> None:
    host = FakeHost()
    host.down.add(HOSTS[0])
    with pytest.raises(MtsError, match="cannot reach the host") as caught:
        await host.client(seconds=20).latest("orders")
    assert caught.value.code == "unreachable"
    assert host.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert host.now <= 20


async def test_a_bad_request_is_not_repeated() -> None:
    host = FakeHost()
    host.once("/latest", api_error(400, "bad_request"))
    with pytest.raises(MtsError, match="bad_request happened"):
        await host.client().latest("orders")
    assert len(host.log) == 1


async def test_a_dead_address_is_left_at_once_and_not_tried_again_while_another_answers() -> None:
    host = FakeHost()
    host.down.add(HOSTS[0])
    client = host.client(urls=HOSTS)
    for _ in range(3):
        await client.publish("orders", b"x")
    assert host.pauses == []
    assert len(host.asked("POST host-a")) == 1
    assert len(host.asked("POST host-b")) == 3


async def test_with_all_addresses_down_the_client_pauses_once_a_round() -> None:
    host = FakeHost()
    host.down.update(HOSTS)
    with pytest.raises(MtsError):
        await host.client(urls=HOSTS, seconds=0.5).latest("orders")
    assert host.pauses == [0.1, 0.2]
    assert len(host.log) == 6


async def test_a_batch_without_producer_is_not_repeated_when_its_outcome_is_unknown() -> None:
    host = FakeHost()
    host.once("/batch", break_before)
    with pytest.raises(MtsError) as caught:
        await host.client().publish_batch("orders", [b"a"])
    assert (caught.value.code, caught.value.retryable) == ("outcome_unknown", False)
    host.once("/batch", api_error(503, "unavailable"))
    with pytest.raises(MtsError, match="unavailable happened"):
        await host.client().publish_batch("orders", [b"a"])
    assert len(host.log) == 2


async def test_a_batch_that_was_never_sent_or_refused_as_too_much_is_repeated() -> None:
    host = FakeHost()
    host.once("/batch", refuse_connection, api_error(429, "overloaded"))
    results = await host.client().publish_batch("orders", [b"a"])
    assert results[0].unwrap().sequence == 1


async def test_a_batch_of_a_named_producer_is_repeated() -> None:
    host = FakeHost()
    host.once("/batch", break_before)
    results = await host.client().publish_batch("orders", [b"a", b"b"], producer_id="till", first_seqno=7)
    assert [result.ok for result in results] == [True, True]
    assert [message.meta["seqno"] for message in host.messages] == [7, 8]


async def test_a_proxys_own_error_page_gets_a_code_by_its_status() -> None:
    host = FakeHost()
    host.once("/latest", answer(404, b"<html>nothing here</html>", x_request_id="r1"))
    with pytest.raises(MtsError, match="answered 404") as caught:
        await host.client().latest("orders")
    assert caught.value.code == "not_found"
    assert caught.value.details["request_id"] == "r1"


async def test_an_answer_of_another_shape_is_an_error_that_says_so() -> None:
    host = FakeHost()
    host.once("/latest", answer(200, b'{"surprise": 1}'))
    with pytest.raises(MtsError, match="not what this version"):
        await host.client().latest("orders")


async def test_a_wrong_token_is_an_error_at_once() -> None:
    host = FakeHost()
    client = host.client()
    client._transport._authorization = {"authorization": "Bearer wrong"}
    with pytest.raises(MtsError) as caught:
        await client.latest("orders")
    assert caught.value.code == "unauthorized"
    assert len(host.log) == 1


@pytest.mark.parametrize("subject", ["", "a b", "../x", ".hidden", "x" * 241, "ä"])
async def test_a_bad_subject_is_refused_before_anything_is_sent(subject: str) -> None:
    host = FakeHost()
    for call in (host.client().publish(subject, b""), host.client().latest(subject), host.client().fetch(subject)):
        with pytest.raises(MtsError, match="is not valid"):
            await call
    assert host.log == []


@pytest.mark.parametrize("token", ["a\nb", "a\x00", "\udcff"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(MtsError) as caught:
        AsyncClient(HOSTS, token)
    assert caught.value.details == {"field": "token"}


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("data", lambda client: client.publish("orders", "\udcff")),
        ("headers", lambda client: client.publish("orders", b"x", headers={"a": "\udcff"})),
        ("headers", lambda client: client.publish("orders", b"x", headers={"a": 5})),
        ("headers", lambda client: client.publish("orders", b"x", headers={5: "a"})),
        ("subject", lambda client: client.publish(5, b"x")),
        ("group", lambda client: client.publish("orders", b"x", group=5)),
        ("content_type", lambda client: client.publish("orders", b"x", content_type=5)),
        ("producer_id", lambda client: client.publish("orders", b"x", producer_id=5, seqno=1)),
        ("seqno", lambda client: client.publish("orders", b"x", producer_id="p", seqno=1.5)),
        ("idempotency_key", lambda client: client.publish("orders", b"x", idempotency_key="")),
        ("idempotency_key", lambda client: client.publish("orders", b"x", idempotency_key="a\nb")),
        ("producer_id", lambda client: client.start_producer("orders", "\udcff")),
        ("sequence", lambda client: client.get("abc")),
        ("sequence", lambda client: client.get(-1)),
        ("durable", lambda client: client.consumers.get("orders", "\udcff")),
        ("durable", lambda client: client.consumers.get("orders", 5)),
    ],
)
async def test_an_argument_that_cannot_be_sent_is_named(field: str, call: Any) -> None:
    host = FakeHost()
    with pytest.raises(MtsError) as caught:
        await call(host.client())
    assert (caught.value.code, caught.value.details["field"], host.log) == ("bad_request", field, [])


def test_an_address_that_is_not_one_is_refused() -> None:
    with pytest.raises(MtsError, match="not an address"):
        AsyncClient("localhost:8080", "t")


def test_without_any_address_the_error_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    monkeypatch.delenv("MTS_URL", raising=False)
    monkeypatch.delenv("MTS_HOME", raising=False)
    with pytest.raises(MtsError, match="MTS_URL") as caught:
        AsyncClient()
    assert caught.value.code == "not_configured"


def test_address_and_token_come_from_the_environment(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    monkeypatch.setenv("MTS_URL", "http://one:1,http://two:2")
    monkeypatch.setenv("MTS_TOKEN", "secret")
    client = AsyncClient()
    assert client._transport.urls == ("http://one:1", "http://two:2")
    assert client._transport._authorization == {"authorization": "Bearer secret"}


def test_the_token_of_a_stack_is_told_to_its_own_host_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, settings in {"state": {"server.urls": ["http://mine:1"]}, "secrets": {"server.token": "secret"}}.items():
        write_private(private_folder(tmp_path / "home") / f"{name}.json", json.dumps({"settings": settings}).encode())
    monkeypatch.setenv("MTS_HOME", str(tmp_path / "home"))
    for name in ("MTS_URL", "MTS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    sent = {"authorization": "Bearer secret"}
    assert AsyncClient()._transport._authorization == AsyncClient("http://mine:1")._transport._authorization == sent
    assert AsyncClient(["http://mine:1", "http://other:2"])._transport._authorization != sent
    monkeypatch.setenv("MTS_URL", "http://other:2")
    assert AsyncClient()._transport._authorization != sent
    assert AsyncClient.from_settings(load_settings())._transport._authorization != sent
    monkeypatch.setenv("MTS_TOKEN", "secret")
    assert AsyncClient()._transport._authorization == AsyncClient("http://other:2")._transport._authorization == sent


def test_the_sdk_imports_nothing_of_the_server() -> None:
    code = (
        "import sys, minitoolstream.client\n"
        "heavy = {'asynctnt', 'chalice', 'uvicorn', 'boto3', 'botocore', 'minio', 'uvloop', 'click'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_change_of_a_pin_whose_answer_was_lost_is_known_as_the_same_change() -> None:
    """Else its version would be stale by its own first try."""
    cid = cid_of(b"pinned").text
    host = FakeHost()
    shape: dict[str, Any] = {
        "cid": cid,
        "owner": "api",
        "status": "queued",
        "rf": 1,
        "version": 2,
        "created_at": "",
        "updated_at": "",
    }
    shape["placement"] = {"desired": [], "actual": [], "failed": [], "in_progress": [], "drift": False, "attempts": 0}
    changed = answer(200, json.dumps(shape).encode())
    host.once(f"PUT host-a/v1/catalog/pins/{cid}", break_before, changed, changed)
    host.once(f"DELETE host-a/v1/catalog/pins/{cid}", break_before, answer(200, b'{"unpinned": true}'))
    client = host.client()
    for _ in range(2):
        assert (await client.catalog.update(cid, version=1, name="mine")).version == 2
    ids = [json.loads(body)["operation_id"] for body in host.bodies]
    assert ids[0] == ids[1]
    assert ids[1] != ids[2]
    await client.catalog.unpin(cid)
    sent = host.asked("DELETE")
    assert (len(sent), len(set(sent)), "operation_id=" in sent[0]) == (2, 1, True)
