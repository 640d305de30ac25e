"""Retention through the real servers: by setting, API and specification; what holds it back; what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tarantool.connection import Connection
from tarantool.error import DatabaseError

from tests.faults.audit import objects_in_bucket
from tests.live import Answer, Live, eventually, start_live

TEN_YEARS = 10 * 365 * 86400


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Nothing expires by itself: tests sweep when they want to."""
    extra = {"MTS_TTL_CHECK_INTERVAL": "1h", "MTS_TTL_CHANNELS": "logs=7d"}
    live = start_live(tmp_path_factory.mktemp("retention"), extra_env=extra)
    eventually(lambda: live.api("GET", "/v1/ttl").json["channels"] == {"logs": 604800})
    yield live
    live.stop()


def put(live: Live, subject: str, **settings: Any) -> Answer:
    return live.api("PUT", f"/v1/subjects/{subject}", settings)


def sweep(live: Live) -> Any:
    answer = live.api("POST", "/v1/sweep")
    assert answer.status == 200, answer.body
    return answer.json


def count(live: Live, subject: str) -> int:
    return int(live.api("GET", f"/v1/subjects/{subject}").json["messages"])


def spec(live: Live) -> Any:
    host, _, port = live.tarantool.address.partition(":")
    return Connection(host, int(port), user="mts", password=live.tarantool.password, fetch_schema=False)


def test_messages_and_payloads_go_when_their_time_is_over(stack: Live, subject: str) -> None:
    put(stack, subject, ttl=1)
    stack.publish(subject, b"inline")
    ticket = stack.ticket(subject, 5)
    assert stack.put(ticket, b"large").status == 200
    young = stack.publish(f"{subject}-young", b"stays").json["sequence"]

    eventually(lambda: sweep(stack)["finished"] and count(stack, subject) == 0)

    assert stack.messages(subject) == []
    assert stack.api("GET", f"/v1/messages/{young}").status == 200
    eventually(lambda: sweep(stack)["finished"] and ticket["object_name"] not in objects_in_bucket(stack))


def test_settings_of_a_subject_are_told_and_taken_back(stack: Live, subject: str) -> None:
    made = put(stack, subject, ttl=TEN_YEARS, max_messages=5, max_bytes=1000).json
    assert made["settings"] | {"ttl": TEN_YEARS, "max_messages": 5, "max_bytes": 1000} == made["settings"]
    assert made["expires_after"] == TEN_YEARS
    again = put(stack, subject, ttl=None, max_messages=None, max_bytes=None).json
    assert not {"ttl", "max_messages", "max_bytes"} & set(again["settings"])
    assert again["expires_after"] == 86400
    assert put(stack, "logs").json["expires_after"] == 604800


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": TEN_YEARS + 1}, {"ttl": "7d"}, {"ttl": 1.5}, {"max_messages": 0}, {"max_bytes": -1}]
)
def test_settings_that_do_not_fit_are_refused(stack: Live, subject: str, wrong: dict[str, Any]) -> None:
    answer = put(stack, subject, **wrong)
    assert (answer.status, answer.code) == (400, "bad_request")


def test_the_newest_messages_are_kept(stack: Live, subject: str) -> None:
    put(stack, subject, max_messages=3)
    sequences = [stack.publish(subject, f"{number}".encode()).json["sequence"] for number in range(8)]
    sweep(stack)
    assert [message["sequence"] for message in stack.messages(subject)] == sequences[-3:]


def test_an_important_durable_holds_back_and_is_named(stack: Live, subject: str) -> None:
    put(stack, subject, ttl=1)
    durable = f"/v1/subjects/{subject}/consumers/careful"
    assert stack.api("PUT", durable, {"important": True}).status == 201
    sequences = [stack.publish(subject, b"12345").json["sequence"] for _ in range(3)]

    def held() -> Any:
        sweep(stack)
        found = [hold for hold in stack.api("GET", "/v1/ttl").json["holds"] if hold["subject"] == subject]
        return found[0] if found and found[0]["messages"] == 3 else None

    hold = eventually(held)
    assert (hold["durable"], hold["bytes"], hold["estimated"]) == ("careful", 15, False)
    assert count(stack, subject) == 3
    eventually(lambda: subject in metrics(stack))
    assert f'minitoolstream_held_messages{{durable="careful",subject="{subject}"}} 3.0' in metrics(stack)

    assert stack.api("POST", f"{durable}/ack", {"sequence": sequences[1]}).status == 200
    eventually(lambda: sweep(stack) and count(stack, subject) == 1)
    assert stack.api("DELETE", durable).status == 200
    eventually(lambda: sweep(stack) and count(stack, subject) == 0)
    assert subject not in [hold["subject"] for hold in stack.api("GET", "/v1/ttl").json["holds"]]


def metrics(live: Live) -> str:
    return live.api("GET", "/metrics").body.decode()


def test_what_a_sweep_did_is_counted(stack: Live, subject: str) -> None:
    put(stack, subject, ttl=1)
    stack.publish(subject, b"x")
    eventually(lambda: sweep(stack) and count(stack, subject) == 0)
    names = ("expired_messages_total", "deleted_objects_total", "last_sweep_timestamp_seconds", "clock_drift_seconds")
    eventually(lambda: all(f"minitoolstream_{name}" in metrics(stack) for name in names))
    assert abs(stack.api("GET", "/v1/ttl").json["drift_ms"]) < 60_000


def test_the_default_is_set_by_api_and_survives_a_restart(tmp_path: Any) -> None:
    live = start_live(tmp_path)
    try:
        eventually(lambda: live.api("GET", "/v1/ttl").json["enabled"])
        changed = live.api("PUT", "/v1/ttl", {"default_ttl": 1234, "channels": {"metrics": 60}})
        assert (changed.status, changed.json["default_ttl"], changed.json["channels"]) == (200, 1234, {"metrics": 60})
        assert live.api("PUT", "/v1/ttl", {"default_ttl": 0}).code == "bad_request"
        assert live.api("PUT", "/v1/ttl", {"channels": {"metrics": "1d"}}).code == "bad_request"
        live.tarantool.kill()
        live.tarantool.start()
        live.hosts[0].stop()
        live.hosts[0].start()
        eventually(lambda: live.api("GET", "/v1/ttl").status == 200)
        found = live.api("GET", "/v1/ttl").json
        assert (found["default_ttl"], found["enabled"], found["fiber_running"]) == (1234, True, True)
    finally:
        live.stop()


def test_the_functions_of_the_specification_work_as_the_applications_user(tmp_path: Any) -> None:
    live = start_live(tmp_path)
    try:
        eventually(lambda: live.api("GET", "/v1/ttl").json["enabled"])
        calls = spec(live)
        config = {"enabled": True, "default_ttl": 1, "check_interval": 0.1, "channels": {"kept": 3600}}
        assert list(calls.call("configure_ttl", config)) == [True]
        status = calls.call("get_ttl_status")[0]
        assert status == {**config, "fiber_running": True}
        assert calls.call("start_ttl_cleanup")[0] is False
        live.publish("kept", b"x")
        live.publish("gone", b"x")
        eventually(lambda: count(live, "gone") == 0)  # by the fiber
        assert count(live, "kept") == 1
        assert calls.call("stop_ttl_cleanup")[0] is True
        assert calls.call("get_ttl_status")[0]["enabled"] is False
        assert calls.call("start_ttl_cleanup")[0] is False
        eventually(lambda: calls.call("delete_old_messages", 1)[0] == 1)
        assert count(live, "kept") == 0
        with pytest.raises(DatabaseError, match="whole number"):
            calls.call("delete_old_messages", 0)
    finally:
        live.stop()


def objects_of(live: Live, subject: str) -> set[str]:
    page = live.api("GET", f"/v1/subjects/{subject}/messages?view=extents&limit=1000").json
    return {extent["object_name"] for extent in page["extents"]}


def test_packs_hold_messages_that_end_together(stack: Live, subject: str) -> None:
    long, short = f"{subject}-long", f"{subject}-short"
    put(stack, long, ttl=TEN_YEARS)
    put(stack, short, ttl=100)
    for name in (long, short):
        stack.publish(name, b"so that the host knows it")
        stack.publish(name, b"in each of its workers")

    def publish(number: int) -> None:
        assert stack.publish((long, short)[number % 2], b"x").status == 201

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(200)))
    objects = [objects_of(stack, name) for name in (long, short)]
    # Each worker guesses once for each subject.
    assert len(objects[0] & objects[1]) <= 4
